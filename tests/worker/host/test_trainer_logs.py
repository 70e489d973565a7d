import pytest

from worker.host.trainer_logs import LIMIT_NOTE, LogCollector, clean_line


def test_colours_and_progress_bars_become_plain_text():
    assert clean_line("\x1b[31mred\x1b[0m") == "red"
    assert clean_line("10%\r50%\r100%\r") == "100%"
    assert clean_line("\x1b]0;title\x07text") == "text"


def test_secrets_do_not_reach_the_log():
    assert clean_line("token hf_" + "a" * 34) == "token [secret]"
    assert clean_line("postgresql://me:pass@host/db") == "postgresql://[secret]@host/db"


def test_lines_are_written_in_order_and_once():
    written_chunks = []
    log = LogCollector(lambda number, text: written_chunks.append((number, text)))
    log.add("one")
    log.add("two")
    log.flush()
    log.flush()
    log.add("three")
    log.flush()
    assert written_chunks == [(0, "one\ntwo\n"), (1, "three\n")]


def test_a_chunk_whose_response_was_lost_is_sent_again_unchanged():
    text_by_number: dict[int, str] = {}
    is_cut = [True]

    def write(number, text):
        text_by_number.setdefault(number, text)  # like the primary key of the table
        if is_cut.pop() if is_cut else False:
            raise ConnectionResetError

    log = LogCollector(write)
    log.add("one")
    with pytest.raises(ConnectionResetError):
        log.flush()
    log.add("two")
    log.flush()
    assert text_by_number == {0: "one\n", 1: "two\n"}


def test_output_beyond_the_limit_leaves_one_visible_note():
    written_texts = []
    log = LogCollector(lambda _number, text: written_texts.append(text), limit=20)
    for line in ("0123456789", "0123456789", "more", "and more"):
        log.add(line)
    log.flush()
    assert written_texts == ["0123456789\n" + LIMIT_NOTE]
