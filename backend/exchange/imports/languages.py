"""Words of Chinese and Japanese logs in English."""

import re

_ENGLISH = {
    "奖励": "reward", "報酬": "reward", "得分": "score", "损失": "loss", "損失": "loss", "策略": "policy",
    "总": "total", "准确率": "accuracy", "正确率": "accuracy", "正解率": "accuracy", "熵": "entropy",
    "学习率": "lr", "学習率": "lr", "梯度范数": "grad_norm", "散度": " ", "平均": "mean", "长度": "length",
    "長さ": "length", "回答": "response", "步数": "step", "步骤": "step", "ステップ": "step",
    "迭代": "iteration", "轮次": "epoch", "エポック": "epoch", "训练": "train", "学習": "train",
    "评估": "eval", "評価": "eval", "验证": "validation", "验证集": "validation", "测试": "test",
    "测试集": "test",
}  # fmt: skip
_METRICS = re.compile("奖励|報酬|得分|损失|損失|准确率|正确率|正解率|熵|平均")
"""Pattern of the words without which a line is not translated: it may be in a completion."""
_WORDS = re.compile("|".join(sorted(_ENGLISH, key=len, reverse=True)))
_NUMBERED = re.compile(r"第\s{0,3}(\d{1,9})(?:\s?/\s?(\d{1,9}))?\s{0,3}(步|轮)")
_PUNCTUATION = str.maketrans("：，；（）＝％｜、。【】", ":,;()=%|,.[]")


def in_english(text: str) -> str:
    """Return a line with its metrics and punctuation in English, or the line if it has no such metrics."""
    if text.isascii() or _METRICS.search(text) is None:
        return text
    text = _NUMBERED.sub(_numbered, text.translate(_PUNCTUATION))
    return (
        re.sub(r" {2,}", " ", _WORDS.sub(lambda word: f" {_ENGLISH[word[0]]} ", text))
        .replace(" :", ":")
        .strip()
    )


def _numbered(match: re.Match[str]) -> str:
    total = f"/{match[2]}" if match[2] else ""
    return f" {'step' if match[3] == '步' else 'epoch'} {match[1]}{total} "
