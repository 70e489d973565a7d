"""Read the printed output of a trainer line by line: objects, lines of verl, pairs and tables of metrics."""

import re
from collections import deque
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from backend.exchange.imports.console.bars import ProgressBars, has_bar, split_after_bar
from backend.exchange.imports.console.boxes import Box, is_bottom, is_top
from backend.exchange.imports.console.evaluations import (
    Tag,
    find_tag,
    is_heading,
    may_have_tag,
    results_after_tag,
    tag_of_heading,
    tag_of_labels,
)
from backend.exchange.imports.console.forms import (
    MAX_LINE_CHARACTERS,
    VERL_CONTINUATION_PATTERN,
    VERL_PATTERN,
    TrainingPosition,
    find_position,
    is_bare_position,
    is_epoch_heading,
    may_name_step,
    verl_cells,
    without_logger,
    without_types,
)
from backend.exchange.imports.console.literals import Incomplete, read_object
from backend.exchange.imports.console.open_object import NoObject, OpenObject
from backend.exchange.imports.console.pairs import (
    evaluation_cells,
    lone_pairs,
    numbered_pairs,
    only_pairs,
    pairs_by_split,
)
from backend.exchange.imports.console.rows import (
    NO_STEP,
    TRAINING,
    Rows,
    StepHint,
    find_number,
    find_step,
)
from backend.exchange.imports.console.tables import Tables
from backend.exchange.imports.console.terminal import without_writer
from backend.exchange.imports.console.trust import BELOW_HEADING
from backend.exchange.imports.console.within_steps import NUMBERED, RESULT, WORDS_OF_STEP, WORDS_WITHIN_STEP
from backend.exchange.imports.languages import in_english
from backend.exchange.imports.log import LogMetadata
from backend.exchange.imports.names import is_known, metric_of_name
from backend.exchange.imports.splits import (
    are_held_out_names,
    are_pass_rates,
    is_held_out_name,
)
from backend.exchange.imports.table import as_number, flatten_cells, number_in

MIN_SPARE_LINES, SPARE_LINES_PER_LINE = 2_000, 1
"""Number of lines that may be read again because they are no object, in all and for each line of the log."""
MAX_CHARACTERS_BEFORE = 300
"""Maximum length of the text before an object that may name its step."""
OBJECTS, VERL_LINES, PAIRS, LISTS, TABLE = "objects", "verl", "pairs", "lists", "table"
BARS, NUMBERED_PAIRS, BARE_PAIRS = "progress bars", "pairs with a number", "pairs without steps"
RESULTS = "results without steps"
"""Rewards and accuracies on lines of their own, which are added to the pairs."""
FORMS = (OBJECTS, VERL_LINES, PAIRS, LISTS, TABLE, BARS, NUMBERED_PAIRS, BARE_PAIRS, RESULTS)
INLINE = "inline"
"""Label of a row whose pairs are all called those of an evaluation."""

_BARE_OBJECT = re.compile(r"""\s{0,9}(['"])[\w./()@ -]{1,80}\1: ?[^{]{1,8000}$""")
"""Pattern of an object that was copied without its braces."""
_BRACE = re.compile(r"\{\s*(?:['\"]|$)")
_TOTALS = re.compile(r"(?:Total optimization steps|Num [Ee]pochs) = ([\d,]{1,12})")
_MAY_BE_PAIRS = re.compile(r"=-?[\d.n].*=|: ?-?[\d.n].*: ?-?[\d.n]")
"""Pattern of two named numbers, which a line without a step must contain to be a row."""
_LONE_PAIR_PATTERN = re.compile(r"\s{0,8}[^:=]{3,80}[:=]\s{0,4}[-+]?[\d.][\d.e%/+-]{0,20}\s*$")
_YAML_PATTERN = re.compile(r"(?P<indentation> *)(?P<name>[A-Za-z_][\w./@-]{0,79}):(?P<is_parent>\s*$)?")
_GENERAL_PARENTS = {"metrics", "train", "training", "results", "stats", "summary"}
"""Keys whose metrics are those of the training."""
MAX_PARENTS = 8
"""Maximum number of keys above a line of YAML; deeper keys are left out of the names."""
_SUMMARY = "train_runtime"


class _VerlLine(NamedTuple):
    line: int
    step: int
    texts: list[str]
    """Text after the step, in pieces."""


class ConsoleText:
    """Rows of metrics of each form that a text may have; the best form is used at the end."""

    def __init__(self, max_values: int) -> None:
        self.forms = {form: Rows(max_values) for form in FORMS}
        self.tables = Tables(self.forms[TABLE])
        self.metadata = LogMetadata()
        self.total: int | None = None
        self.epochs: float | None = None
        self.lines = 0
        """Number of lines that are not progress bars."""
        self._bars = ProgressBars(self.forms[BARS])
        self._heading = TrainingPosition(None)
        self._heading_line = 0
        self._epoch: float | None = None
        """Epoch in the last heading that named only an epoch."""
        self._section: Tag | None = None
        """Label of the evaluation in the last heading, if it announced one."""
        self._section_step: int | None = None
        """Step of the first row below that heading; those of other steps are not of the evaluation."""
        self._section_line = 0
        self._evaluated_step = NO_STEP
        """Step in the last line that announced an evaluation."""
        self._list: list[tuple[str, str]] = []
        self._list_names: set[str] = set()
        self._list_lines = 0
        self._parents: list[tuple[int, str]] = []
        """Indentation and name of the keys above the line, in YAML below a heading."""
        self._is_yaml = False
        """Whether a line below the heading was indented below such a key."""
        self._box: Box | None = None
        self._open = OpenObject()
        self._spare_lines = MIN_SPARE_LINES
        """Number of lines that may still be read again; objects over several lines are not read without."""
        self._unread: deque[tuple[int, str]] = deque()
        """Lines of a supposed object that is none, which are read again."""
        self._verl: _VerlLine | None = None
        """Line of verl directly before this one, which may continue it."""
        self._newest: dict[str, Any] = {}
        """The last object with metrics."""

    def read(self, lines: Iterator[tuple[int, str]]) -> None:
        """Read lines; `end` follows the last of them."""
        for line, text in lines:
            self._spare_lines += SPARE_LINES_PER_LINE
            self._read_line(line, text)
            self._read_again()
        self._end_list()
        self._bars.end()
        self._end_verl()

    def end(self) -> None:
        """Read the lines of an object that never closed."""
        while self._open:
            self._give_up_object()
            self._read_again()
        self.read(iter(()))

    def _read_line(self, line: int, text: str, *, may_open: bool = True) -> None:
        if "{" not in text and has_bar(text):
            bar, text = split_after_bar(text)
            self._bars.take(line, bar)
            if not text:
                return
        self.lines += 1
        if form := self._take(line, text, may_open=may_open):
            self.forms[form].lines += 1

    def _read_again(self) -> None:
        while self._unread:
            self._read_line(*self._unread.popleft())

    def _take(self, line: int, text: str, *, may_open: bool) -> str:
        """Return the form of a line; empty if it has no metrics."""
        writer, content = without_writer(text)
        if self._open:
            self._continue_object(line, text, content, writer)
            return ""
        if _BARE_OBJECT.match(content):
            content = f"{{{content.strip(' ,')}}}"
        brace = _BRACE.search(content) if "{" in content and may_open else None
        if brace is not None and self._take_objects(line, content, brace.start(), writer):
            return OBJECTS
        if self._take_verl(line, content):
            return VERL_LINES
        return self._take_line(line, content, writer) if len(content) <= MAX_LINE_CHARACTERS else ""

    # ------------------------------------------------------------ objects

    def _continue_object(self, line: int, text: str, content: str, writer: str) -> None:
        try:
            complete = self._open.add(line, text, content)
        except NoObject:
            self._give_up_object()
            return
        if complete is not None:
            self.forms[OBJECTS].lines += len(self._open.take_lines()) - 1
            self._take_objects(line, *complete, writer)

    def _give_up_object(self) -> None:
        """Read the lines of a supposed object again, the first of them without its brace."""
        first, *others = self._open.take_lines()
        self.lines -= 1 + len(others)
        self._spare_lines -= len(others)
        self.forms[OBJECTS].lines -= 1
        self._unread.extendleft(reversed(others))
        self._read_line(*first, may_open=False)

    def _take_objects(self, line: int, text: str, offset: int, writer: str) -> bool:
        """Return whether the text contains objects with numbers, of which a line may have several."""
        has_object, end_of_previous, last_brace = False, 0, text.rfind("{")
        while offset >= 0:
            try:
                document, end = read_object(text, offset, is_last=offset == last_brace)
            except Incomplete:
                if self._spare_lines <= 0:
                    return has_object
                start = max(end_of_previous, offset - MAX_CHARACTERS_BEFORE)
                self._open.begin(line, text[end_of_previous:], text[start:], offset - start)
                return True
            except ValueError:
                end = offset + 1
            else:
                has_object = (
                    self._add_object(line, document, text[end_of_previous:offset], writer) or has_object
                )
                end_of_previous = end
            match = _BRACE.search(text, end)
            offset = match.start() if match else -1
        if has_object and "%|" in text[end_of_previous:]:
            self._bars.keep(text[end_of_previous:])
        return has_object

    def _add_object(self, line: int, document: dict[str, Any], text_before: str, writer: str) -> bool:
        if "%|" in text_before:
            self._bars.keep(text_before)
        if _SUMMARY in document:
            self._add_summary(document)
            return True
        if document == self._newest and "epoch" in document:
            return True  # another process printed the same object
        self._newest = document
        cells = [
            (name, number)
            for name, value in flatten_cells(document)
            if (number := number_in(name, value)) is not None
        ]
        if not cells or (len(cells) < 2 and not is_known(cells[0][0])):
            return False
        value_by_name = dict(cells)
        step, counter = find_step(value_by_name, text_before)
        heading_step = self._heading.step if self._heading.step is not None else NO_STEP
        if step == NO_STEP and line - self._heading_line <= 2:
            step = heading_step
        epoch = as_number(value_by_name.get("epoch"))
        number_before = find_number(text_before)
        hint = StepHint(
            step,
            heading_step if number_before is None else number_before,
            epoch=float("nan") if epoch is None else epoch,
            bars=self._bars.counters(),
            counter=counter,
            writer=writer,
            is_eval=are_held_out_names(value_by_name) or counter == "eval",
        )
        hint = self._with_tag(hint, line, text_before, tag_of_labels(document.items()))
        self.forms[OBJECTS].add(line, cells, hint)
        return True

    def _add_summary(self, document: dict[str, Any]) -> None:
        self.metadata.config["training_summary"] = {
            name: number for name, value in document.items() if (number := as_number(value)) is not None
        }
        if (epochs := as_number(document.get("epoch"))) and self.epochs is None:
            self.epochs = epochs
        self.forms[OBJECTS].end_training()

    # ------------------------------------------------------------ lines

    def _take_verl(self, line: int, text: str) -> bool:
        match = VERL_PATTERN.search(text) if "step:" in text else None
        if match is None and self._verl is not None and VERL_CONTINUATION_PATTERN.search(text):
            self._verl.texts.append(text)
            return True
        self._end_verl()
        if match is not None:
            self._verl = _VerlLine(line, int(match[1]), [text[match.end() :]])
        return match is not None

    def _end_verl(self) -> None:
        if self._verl is not None:
            line, step, texts = self._verl
            self.forms[VERL_LINES].add(line, verl_cells("".join(texts)), StepHint(step))
        self._verl = None

    def _take_line(self, line: int, text: str, writer: str) -> str:
        if self.tables.take_line(line, text):
            return TABLE
        text = in_english(without_types(text))
        self._take_box(line, text)
        if " = " in text and (total := _TOTALS.search(text)):
            self._take_total(text, int(total[1].replace(",", "")))
            return ""
        if "Evaluated " in text and (cells := evaluation_cells(text)):
            self._add_pairs(PAIRS, line, cells, StepHint(self._evaluated_step, writer=writer))
            return PAIRS
        is_in_titled_box = self._box is not None and self._box.is_titled and "│" in text
        if may_name_step(text) and not is_in_titled_box:
            position = find_position(text)
            if position.step is not None or position.epoch is not None:
                return self._take_heading(line, text, position, writer)
        return self._take_pairs(line, text, writer)

    def _take_box(self, line: int, text: str) -> None:
        """Take a line of a box; a box of metrics becomes a row, beside what its lines are by themselves."""
        if is_top(text):
            self._box = Box(text)
        elif self._box is not None and is_bottom(text):
            if self._box.has_metrics:
                self.forms[LISTS].add(line, self._box.cells, StepHint(self._box.step or 0))
                self.forms[LISTS].lines += self._box.lines
            self._box = None
        elif self._box is not None and "│" in text:
            self._box.take_line(text)

    def _take_pairs(self, line: int, text: str, writer: str) -> str:
        """Take a line that names no step."""
        message = without_logger(text)
        may_be_pairs = (
            _MAY_BE_PAIRS.search(message)
            or _LONE_PAIR_PATTERN.match(message)
            or is_held_out_name(message.lstrip())
        )
        cells = lone_pairs(message) if self._heading.step is not None or may_be_pairs else []
        if self._heading.step is not None and (yaml := _YAML_PATTERN.match(text)):
            cells = self._with_parents(yaml, cells)
            if yaml["is_parent"] is not None and self._is_yaml:
                return LISTS
        if not self._list_names.isdisjoint(name for name, _ in cells):
            self._end_list()  # a second row needs its own heading
            self._heading = TrainingPosition(None)
        if cells and self._heading.step is not None:
            self._list += cells
            self._list_names.update(name for name, _ in cells)
            self._list_lines += 1
            return LISTS
        if cells and len(self.forms[PAIRS]) and is_held_out_name(cells[0][0]):
            is_label = " " in cells[0][0]  # `Eval accuracy: 0.3, reward: 0.2`
            self._add_pairs(PAIRS, line, cells, StepHint(writer=writer, is_eval=is_label))
            return PAIRS
        is_below_evaluation = self._section is not None and len(self.forms[PAIRS])
        if not is_below_evaluation and cells and _is_result(cells[0]):
            is_eval = self._section is not None
            self._add_pairs(RESULTS, line, cells, StepHint(word=RESULT, writer=writer, is_eval=is_eval))
        if not is_below_evaluation and len(cells) > 1 and any(is_known(name) for name, _ in cells):
            self._add_pairs(BARE_PAIRS, line, cells, StepHint(writer=writer))
            return BARE_PAIRS
        may_be_evaluation = self._section is not None or may_have_tag(text)
        if may_be_evaluation and (form := self._take_evaluation(line, text, cells, writer)):
            return form
        if not cells and (row := numbered_pairs(text)):
            hint = self._with_tag(StepHint(heading=row.number, word=NUMBERED, writer=writer), line, text)
            self._add_pairs(NUMBERED_PAIRS, line, row.pairs, hint)
            return NUMBERED_PAIRS
        return ""

    def _with_parents(self, yaml: re.Match[str], cells: list[tuple[str, str]]) -> list[tuple[str, str]]:
        """Return the pairs of a line of YAML with the names of the keys above it."""
        indentation = len(yaml["indentation"])
        while self._parents and self._parents[-1][0] >= indentation:
            self._parents.pop()
        if yaml["is_parent"] is not None:
            if len(self._parents) < MAX_PARENTS:
                self._parents.append((indentation, yaml["name"]))
            return cells
        if not self._parents:
            return cells
        self._is_yaml = True
        parents = [parent for _, parent in self._parents]
        path = "" if {parent.lower() for parent in parents} <= _GENERAL_PARENTS else "/".join(parents) + "/"
        return [(path + name, number) for name, number in cells]

    def _take_evaluation(self, line: int, text: str, cells: list[tuple[str, str]], writer: str) -> str:
        """Take a line without a step that announces or contains the results of an evaluation."""
        if not cells and is_heading(text):
            self._end_list()
            self._section, self._section_step, self._section_line = tag_of_heading(text), None, line
            return LISTS
        if not cells:
            cells = only_pairs(text if self._section is not None else results_after_tag(text))
        elif self._section is None:
            return ""
        if not len(self.forms[PAIRS]) or not any(map(_is_result, cells)):
            return ""
        self._add_pairs(PAIRS, line, cells, StepHint(writer=writer, is_eval=True))
        return PAIRS

    def _with_tag(self, hint: StepHint, line: int, text: str, tag: Tag | None = None) -> StepHint:
        """Return the hint with the label of an evaluation in the text of a row or in the heading above it."""
        tag = tag or find_tag(text)
        if tag is None and self._section is not None:
            is_directly_below = line - self._section_line == 1 and not self._section.word.endswith("ing")
            if hint.step == NO_STEP and is_directly_below:
                tag, self._section = Tag(self._section.word + BELOW_HEADING, self._section.suite), None
            elif hint.step != NO_STEP and not hint.writer and self._section_step in {None, hint.step}:
                tag, self._section_step = self._section, hint.step
            else:
                self._end_list()
                self._section = None
        return hint if tag is None else hint._replace(tag=tag.word, suite=tag.suite)

    def _add_pairs(self, form: str, line: int, cells: list[tuple[str, str]], hint: StepHint) -> None:
        names = [name for name, _ in cells]
        is_eval = hint.is_eval or are_held_out_names(names) or are_pass_rates(names)
        self.forms[form].add(line, cells, hint._replace(is_eval=is_eval))

    def _take_total(self, text: str, number: int) -> None:
        if "steps" in text:
            self.total = number
        else:
            self.epochs = float(number)

    def _take_heading(self, line: int, text: str, position: TrainingPosition, writer: str) -> str:
        cells, held_out_cells, is_labelled = pairs_by_split(text)
        if cells or held_out_cells:
            step = position.step if position.step is not None else NO_STEP
            epoch = self._epoch if position.epoch is None else position.epoch
            epoch = float("nan") if epoch is None else epoch
            total = position.total or 0
            hint = StepHint(step, epoch=epoch, total=total, word=position.word, writer=writer)
            hint = self._with_tag(hint, line, text)
            if self._list and self._heading.step == position.epoch and all(map(_is_result, self._list)):
                self._move_list_to_results()  # a reward between `Iteration 1` and `Iteration 1, Step 1`
            if cells:
                self._add_pairs(PAIRS, line, cells, hint._replace(tag=TRAINING) if is_labelled else hint)
            if held_out_cells:
                self._add_pairs(PAIRS, line, held_out_cells, hint._replace(tag=INLINE))
            return PAIRS
        if position.step is None:
            if is_epoch_heading(text):
                self._epoch = position.epoch
            return ""
        is_evaluation = "eval" in text.lower()
        if position.word != self._heading.word and not is_evaluation:
            is_within = position.word in WORDS_WITHIN_STEP and self._heading.word in WORDS_OF_STEP
            is_text = self._heading.total and position.total is None and not is_bare_position(text)
            # `Batch 1`, or `Step 1: add the numbers` in a completion, below `Iteration 7/1000`
            if is_within or is_text:
                return ""
        self._end_list()
        self._heading, self._heading_line = position, line
        self._section, self._section_step = tag_of_heading(text), position.step
        if is_evaluation:
            self._evaluated_step = position.step
        return LISTS

    def _move_list_to_results(self) -> None:
        for cell in self._list:
            self._add_pairs(RESULTS, self._heading_line, [cell], StepHint(word=RESULT))
        self._list, self._list_lines = [], 0
        self._list_names.clear()
        self._heading = TrainingPosition(None)

    def _end_list(self) -> None:
        """Add the pairs in the lines below a heading as a row."""
        if self._list and self._heading.step is not None:
            tag = self._section or Tag("")
            hint = StepHint(self._heading.step, tag=tag.word, suite=tag.suite)
            form = PAIRS if tag.word and len(self.forms[PAIRS]) > len(self.forms[LISTS]) else LISTS
            self.forms[form].add(self._heading_line, self._list, hint)
            self.forms[LISTS].lines -= self._list_lines
            self.forms[form].lines += self._list_lines
        self._list, self._list_lines = [], 0
        self._list_names.clear()
        self._parents, self._is_yaml = [], False


def _is_result(cell: tuple[str, str]) -> bool:
    """Return whether a pair is an accuracy or a reward, which an evaluation has."""
    return _metric_of(cell[0]) in {"reward/accuracy", "eval/accuracy", "reward/mean"}


_metric_of = lru_cache(maxsize=4_096)(metric_of_name)
