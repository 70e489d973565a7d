"""The tiny policy's tokenizer, with one token per printable ASCII character and for `<think>` and
`</think>`.
"""

from string import printable

from tokenizers import AddedToken, Tokenizer, decoders
from tokenizers.models import BPE
from transformers import PreTrainedTokenizerFast

SPECIAL = ("<pad>", "<eos>", "<unk>")
TAGS = ("<think>", "</think>")
CHAT_TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"


def build_tokenizer() -> PreTrainedTokenizerFast:
    """Return the tokenizer.

    The ids are those of the special tokens, the tags, newline and the 95 printable characters in ASCII order.
    """
    characters = sorted(set(printable) - set("\t\r\x0b\x0c"))
    vocabulary = {token: index for index, token in enumerate([*SPECIAL, *TAGS, *characters])}
    tokenizer = Tokenizer(BPE(vocab=vocabulary, merges=[], unk_token="<unk>"))
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in TAGS])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token="<eos>",
        unk_token="<unk>",
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
        padding_side="left",
        model_max_length=1024,
    )
