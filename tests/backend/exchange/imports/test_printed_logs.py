"""Tests of printed training output in every common form: values, steps, and the report on them."""

import io
import json
from contextlib import suppress

import pytest

from backend.exchange.imports.console.literals import read_object
from backend.exchange.imports.formats import read_logs
from backend.exchange.imports.plan import plan_import
from backend.exchange.imports.table import BadLog


def read(text, name="log.txt"):
    content = text if isinstance(text, bytes) else text.encode()
    return [plan_import(log) for log in read_logs(io.BytesIO(content), name)[1]]


def curve(plan, metric="reward/mean"):
    series = plan.series[metric]
    return dict(zip(series.steps.tolist(), series.values.tolist(), strict=True))


def notes(plan):
    return " ".join(plan.log.metadata.notes)


def progress_bar(step, total=40):
    return f"\r {100 * step // total:3}%|##        | {step}/{total} [00:12<01:02,  3.12s/it]"


def trl_line(step, reward, **further):
    row = {"loss": "0.01", "reward": f"{reward:.4g}", "reward_std": "0.2", "kl": 0.001} | further
    return f"{row | {'epoch': f'{step / 40:.4g}'}}"


TRL_WITH_BARS = "".join(
    progress_bar(step) + f"\r{' ' * 60}\r\x1b[32m{trl_line(step, step / 100)}\x1b[0m\n"
    for step in (5, 10, 15, 20)
)
TRL_SUMMARY = "{'train_runtime': '9.1', 'train_loss': '0.1', 'epoch': '0.5'}\n"
SLIME_OUTPUT = "".join(
    f"\x1b[36m(Actor pid=7)\x1b[0m [2026-03-02 10:00:40] data.py:170 - rollout {n}: "
    f"{{'rollout/raw_reward': {n / 10}, 'rollout/rewards': 0.0}}\n"
    f"(Actor pid=7) model.py:520 - step {n}: {{'train/grad_norm': np.float64(0.5), 'train/kl_loss': nan}}\n"
    for n in range(3)
)
TENTHS_BY_STEP = {step: step / 10 for step in (1, 2, 3)}
OUTPUT_FORMS = {
    "trl between bars": (TRL_WITH_BARS + TRL_SUMMARY, {5: 0.05, 10: 0.1, 15: 0.15, 20: 0.2}, "progress bar"),
    "bars without returns": (
        "".join(
            f"{progress_bar(n)[1:]} {progress_bar(n)[1:]}  {trl_line(n, n / 10)}\n" for n in TENTHS_BY_STEP
        ),
        TENTHS_BY_STEP,
        "progress bar",
    ),
    "epochs": (
        "".join(f"INFO - {trl_line(n, n / 10)}\n" for n in (1, 2, 4)),
        {1: 0.1, 2: 0.2, 4: 0.4},
        "epochs",
    ),
    "total of steps": (
        "Num Epochs = 2\n  Total optimization steps = 80\n"
        + "".join(trl_line(n, n / 10) + "\n" for n in (10, 20, 30)),
        {10: 1, 20: 2, 30: 3},
        "of which 2 take 80 steps",
    ),
    "order": (
        "".join(f"{{'loss': 0.1, 'reward': {n / 10}}}" for n in TENTHS_BY_STEP) + "\n",
        TENTHS_BY_STEP,
        "in their order",
    ),
    "over several lines": (
        "".join(
            f"Step {n}: \n(A pid=1) {{'reward/avg_raw_reward': '{n / 10}',\n(A pid=1)  'a': [1]}}\n"
            for n in TENTHS_BY_STEP
        ),
        TENTHS_BY_STEP,
        "",
    ),
    "broken by the terminal": (
        "".join(f"{{'loss': 0.1, 'rew\nard': {n / 10}, 'epoch':\n {n}}}\n" for n in TENTHS_BY_STEP),
        TENTHS_BY_STEP,
        "",
    ),
    "ms-swift": (
        "".join(f"{{'loss': 0.1, 'reward': {n}, 'global_step/max_steps': '{n}/9'}}\n" for n in (5, 9)),
        {5: 5, 9: 9},
        "",
    ),
    "copied without braces": (
        "".join(f"'reward': {n}, 'kl': 0.1, 'global_step/max_steps': '{n}/9',\n" for n in (5, 9)),
        {5: 5, 9: 9},
        "",
    ),
    "slime": (SLIME_OUTPUT, {0: 0, 1: 0.1, 2: 0.2}, "not the reward"),
    "verl late": (
        "(W pid=1) INFO loading, worker 3 of 8, step\n" * 3000
        + "".join(
            f"(T pid=2) step:{n} - critic/score/mean:{n / 10} - actor/kl_loss:0.0\n" for n in TENTHS_BY_STEP
        ),
        TENTHS_BY_STEP,
        "3,000 other lines",
    ),
    "verl, a metric a line": (
        "".join(f"step:{n}\n - actor/entropy:0.3\n - critic/score/mean:{n / 10}\n" for n in TENTHS_BY_STEP),
        TENTHS_BY_STEP,
        "",
    ),
    "verl, broken lines": (
        "".join(
            f"step:{n} - actor/entropy:0.3 \n    - actor/kl_loss:0.1 - cri\n"
            f"tic/score/mean:{n / 10} - actor/lr:0.1 - response_length/mean:9\n"
            for n in TENTHS_BY_STEP
        ),
        TENTHS_BY_STEP,
        "",
    ),
    "pairs": (
        "".join(f"[Step {n}/70] reward_avg={n / 10} lr=1e-6\n" for n in TENTHS_BY_STEP),
        TENTHS_BY_STEP,
        "",
    ),
    "sentences": (
        "".join(f"INFO Step: {n} / 70 | Mean Reward: {n / 10} | KL: 0.1\n" for n in TENTHS_BY_STEP),
        TENTHS_BY_STEP,
        "",
    ),
    "a sentence": (
        "".join(f"Training step {n}/70 done. Mean reward: {n / 10}. KL: 0.1.\n" for n in TENTHS_BY_STEP),
        TENTHS_BY_STEP,
        "",
    ),
    "the step after the name": (
        "".join(f"Average reward after step {n}: {n / 10}\n" for n in TENTHS_BY_STEP),
        TENTHS_BY_STEP,
        "",
    ),
    "an error after the value": (
        "".join(f"Step {n} | reward {n / 10}±0.05\n" for n in TENTHS_BY_STEP),
        TENTHS_BY_STEP,
        "",
    ),
    "MiniMind": (
        "".join(f"Epoch:[1/1]({n}/90), Reward: {n / 10}, Actor Loss: 0.0\n" for n in TENTHS_BY_STEP),
        TENTHS_BY_STEP,
        "",
    ),
    "epochs of three steps": (
        "".join(f"Epoch: {e}, Step: {n}/3, Reward: {e}.{n}\n" for e in (1, 2) for n in TENTHS_BY_STEP),
        {1: 1.1, 2: 1.2, 3: 1.3, 4: 2.1, 5: 2.2, 6: 2.3},
        "",
    ),
    "NeMo-RL": (
        "".join(
            f"===== Step {n}/9 =====\nlogging\n  • Loss: 0.1\n  • Avg Reward: {n / 10}\n"
            for n in TENTHS_BY_STEP
        ),
        TENTHS_BY_STEP,
        "",
    ),
    "AReaL": (
        "".join(
            f"Step {n}/3 Train step {n}/6 done.\n│ ppo_actor/task_reward/avg │ {n / 10:.4e} │ a │ 1 │\n"
            for n in TENTHS_BY_STEP
        ),
        TENTHS_BY_STEP,
        "",
    ),
    "markdown": (
        "As you see:\n\n| Step | Training Loss | reward | kl |\n|---|---|---|---|\n"
        + "".join(f"| {n} | 0.1 | {n / 10} | nan |\n" for n in TENTHS_BY_STEP),
        TENTHS_BY_STEP,
        "'kl' is never a number",
    ),
    "commas": (
        "begin\nstep,reward,kl\n" + "".join(f"{n},{n / 10},0.1\n" for n in TENTHS_BY_STEP),
        TENTHS_BY_STEP,
        "",
    ),
    "aligned": (
        "step    reward   kl\n" + "".join(f"{n}       {n / 10}      0.1\n" for n in TENTHS_BY_STEP),
        TENTHS_BY_STEP,
        "",
    ),
    "postfix of bars": (
        "".join(
            f"{progress_bar(n, 3)[:-1]}, reward={n / 10 * (k + 1) / 2}, kl=0.1]"
            for n in TENTHS_BY_STEP
            for k in (0, 1)
        ),
        TENTHS_BY_STEP,
        "",
    ),
    "description of bars": (
        "".join(f"\rloss 0.1 reward {n / 10}: {progress_bar(n, 3)[1:]}" for n in TENTHS_BY_STEP),
        TENTHS_BY_STEP,
        "",
    ),
    "a bar that stays at the end": (
        "".join(f"{progress_bar(n, 4)[:-1]}, reward={min(n, 3) / 10}]" for n in (1, 2, 3, 4)),
        TENTHS_BY_STEP,
        "",
    ),
    "bars without a total": (
        "".join(f"\r{n}it [00:12,  3.12s/it, loss: 0.1 reward: {n / 10}]" for n in TENTHS_BY_STEP),
        TENTHS_BY_STEP,
        "",
    ),
    "counts": (
        "".join(f"[{n}/70] reward {n / 10} | kl 0.1\n" for n in TENTHS_BY_STEP),
        TENTHS_BY_STEP,
        "",
    ),
    "numbers": (
        "lr=0.1, kl: 0.5\n" + "".join(f"INFO:a:#{n} loss 0.1 reward {n / 10}\n" for n in (7, 9, 12)),
        {7: 0.7, 9: 0.9, 12: 1.2},
        "",
    ),
    "numbers of a process": (
        "".join(f"10:00:0{n} [0] loss=0.1, reward={n / 10}\n" for n in TENTHS_BY_STEP),
        TENTHS_BY_STEP,
        "counted in their order",
    ),
    "a bar for each epoch": (
        "".join(f"\rEpoch {e}: {progress_bar(n, 2)[1:-1]}, reward={e}.{n}]" for e in (0, 1) for n in (1, 2)),
        {1: 0.1, 2: 0.2, 3: 1.1, 4: 1.2},
        "",
    ),
    "steps of an iteration": (
        "".join(f"Iteration 1/1, Step {n}/9, GRPO iter 1/1, reward: {n / 10}\n" for n in TENTHS_BY_STEP),
        TENTHS_BY_STEP,
        "",
    ),
    "completions beside objects": (
        "".join(
            f"step {n} sample 0 reward: 5 length: 33\n" * 9
            + f"{{'step': {n}, 'loss': 0.1, 'reward': {n / 10}, 'kl': 0.1}}\n"
            for n in TENTHS_BY_STEP
        ),
        TENTHS_BY_STEP,
        "",
    ),
    "a list with errors": (
        "".join(f"Step {n}\nReward: {n / 10} (±0.1)\nKL: 0.01\n" for n in TENTHS_BY_STEP),
        TENTHS_BY_STEP,
        "",
    ),
    "a mean after its name": (
        "".join(f"Step: {n}; Rewards: mean={n / 10} std=0.2; Loss: 0.1\n" for n in TENTHS_BY_STEP),
        TENTHS_BY_STEP,
        "",
    ),
    "a time after the values": (
        "".join(f"step {n}  reward {n / 10}  took 3.2s  (0.5 s)\n" for n in TENTHS_BY_STEP),
        TENTHS_BY_STEP,
        "",
    ),
    "updates within a step": (
        "".join(
            f"step {n}: reward={n / 10}\n  epoch 1: loss=0.1\n  update 1 | loss 0.3\n" for n in TENTHS_BY_STEP
        ),
        TENTHS_BY_STEP,
        "",
    ),
    "completions within a step": (
        "".join(
            f"Rollout 1/2: reward=1.0\nRollout 2/2: reward=0\nStep {n}: reward={n / 10}, loss=0.1\n"
            for n in TENTHS_BY_STEP
        ),
        TENTHS_BY_STEP,
        "6 rows without a step were left out",
    ),
    "updates with numbers of their own": (
        "".join(
            f"returns of step {n}: 20.5\n0: reward= {n / 10}, kl= 0.1\n0: reward= {n / 10}, kl= 0.2\n"
            for n in TENTHS_BY_STEP
        ),
        TENTHS_BY_STEP,
        "",
    ),
    "batches of an iteration": (
        "".join(f"iter {e}, batch {n}: mean score: {e}.{n}\n" for e in (0, 1) for n in (0, 1, 2)),
        {0: 0, 1: 0.1, 2: 0.2, 3: 1, 4: 1.1, 5: 1.2},
        "",
    ),
    "two counts in brackets": (
        "".join(f"[{e}/2][{n}/3] reward: {e}.{n}\n" for e in (1, 2) for n in TENTHS_BY_STEP),
        {1: 1.1, 2: 1.2, 3: 1.3, 4: 2.1, 5: 2.2, 6: 2.3},
        "",
    ),
    "epochs in headings": (
        "".join(
            f"=== Epoch {e}/2 ===\n"
            + "".join(f"  Step {n}: reward={e}.{n}, loss=0.1\n" for n in TENTHS_BY_STEP)
            for e in (1, 2)
        ),
        {1: 1.1, 2: 1.2, 3: 1.3, 4: 2.1, 5: 2.2, 6: 2.3},
        "",
    ),
    "steps of a completion below a heading": (
        "".join(
            f"Iteration {n}/9\nFirst, Step 1: 2 + 2 = 4\nMETRICS: {{'reward': {n / 10}, 'kl': 0.1}}\n"
            for n in TENTHS_BY_STEP
        ),
        TENTHS_BY_STEP,
        "",
    ),
    "headings of other counts": (
        "".join(
            f"Generating batch 2/2\nStep {n}\n--- Batch 1 ---\n  reward: {n / 10}\n  loss: 0.2\n"
            for n in TENTHS_BY_STEP
        ).replace("Step 1\n", "Step 1/3\n"),
        TENTHS_BY_STEP,
        "",
    ),
    "a summary of each epoch": (
        "".join(
            f"step {n} loss=0.1 reward={n / 10}\nEpoch {n} done: loss=9, reward=9, grad_norm=0.1\n"
            for n in TENTHS_BY_STEP
        ),
        TENTHS_BY_STEP,
        "",
    ),
    "spaces around signs": (
        "".join(f"step {n} loss = 0.1 reward = {n / 10} grad norm = 0.2\n" for n in TENTHS_BY_STEP),
        TENTHS_BY_STEP,
        "",
    ),
    "a bar of an evaluation beside that of the training": (
        "".join(
            f"{progress_bar(n, 3)[:-1]}, reward={n / 10}, kl=0.1]" + f"{progress_bar(n, 2)[:-1]}, acc=0.9]"
            for n in TENTHS_BY_STEP
        ),
        TENTHS_BY_STEP,
        "",
    ),
    "numbers after a dash": (
        "".join(f"step-{n}: rank 0 loss=0.1 reward={n / 10}\n" for n in TENTHS_BY_STEP),
        TENTHS_BY_STEP,
        "",
    ),
    "a bar for each step": (
        "".join(
            f"\rStep {n}/3: {progress_bar(k, 2)[1:-1]}, reward={n / 10 * k / 2}]"
            for n in TENTHS_BY_STEP
            for k in (1, 2)
        ),
        TENTHS_BY_STEP,
        "",
    ),
    "a rate after the values": (
        "".join(f"step {n}/3 reward {n / 10} loss 0.1 1.2s/it eta 0:12:33\n" for n in TENTHS_BY_STEP),
        TENTHS_BY_STEP,
        "",
    ),
    "Megatron-LM": (
        "".join(
            f" [2026-03-12 10:22:11] iteration {n:8}/     500 | time (ms): 12.6 | reward: {n / 10:.2E} |\n"
            for n in TENTHS_BY_STEP
        ),
        TENTHS_BY_STEP,
        "",
    ),
    "loguru": (
        "".join(
            f"2026-03-12 10:22:1{n}.123 | INFO     | __main__:main:512 - metrics: {{'step': {n}, "
            f"'reward': {n / 10}}}\n"
            for n in TENTHS_BY_STEP
        ),
        TENTHS_BY_STEP,
        "",
    ),
    "a heading and its list after a logger": (
        "".join(
            f"2026-03-12 10:22:10 | INFO | trainer | Iteration {n}/40\n"
            f"2026-03-12 10:22:11 | INFO | trainer | reward: {n / 10}, loss: 0.1\n"
            for n in TENTHS_BY_STEP
        ),
        TENTHS_BY_STEP,
        "",
    ),
    "words without signs": (
        "".join(f"[train] step    {n}/50 mean_reward {n / 10}  groups=3/8\n" for n in TENTHS_BY_STEP),
        TENTHS_BY_STEP,
        "",
    ),
    "numbers before objects": (
        "".join(f"[{n}] {{'reward': {n / 10}, 'loss': 0.1}}\n" for n in (10, 20, 30)),
        {10: 1, 20: 2, 30: 3},
        "",
    ),
    "Chinese": (
        "".join(f"第{n}步，奖励：{n / 10}，损失：0.1，平均长度：99\n" for n in TENTHS_BY_STEP),
        TENTHS_BY_STEP,
        "",
    ),
    "the reward on the line after": (
        "".join(f"step {n}: loss=0.1 kl=0.1\nAverage Reward: {n / 10}\n" for n in TENTHS_BY_STEP),
        TENTHS_BY_STEP,
        "",
    ),
    "the rewards of completions on the lines before": (
        "".join(f"Reward: 0\nReward: {n / 5}\nstep {n}: loss=0.1 kl=0.1\n" for n in TENTHS_BY_STEP),
        TENTHS_BY_STEP,
        "",
    ),
    "the rewards of completions beside their mean": (
        "".join(f"step {n}: mean_reward={n / 10} kl=0.1\nReward: 5\n" for n in TENTHS_BY_STEP),
        TENTHS_BY_STEP,
        "",
    ),
    "tensors": (
        "".join(f"step {n} | reward: tensor({n / 10}, device='cuda:0')\n" for n in TENTHS_BY_STEP),
        TENTHS_BY_STEP,
        "",
    ),
    "spaces": (
        "".join(f"INFO | step {n + 999:,} | reward {n / 10} | kl 0.1\n" for n in TENTHS_BY_STEP),
        {step + 999: reward for step, reward in TENTHS_BY_STEP.items()},
        "",
    ),
    "no steps": (
        "".join(f"reward: {n / 10} kl: 0.1\n" for n in TENTHS_BY_STEP),
        TENTHS_BY_STEP,
        "in their order",
    ),
    "epochs of several lines": (
        "".join(f"Epoch: {n // 2}, Reward: {n / 10}\n" for n in TENTHS_BY_STEP),
        TENTHS_BY_STEP,
        "in their order",
    ),
    "pandas": (
        "   step  reward   kl\n" + "".join(f"{n + 6}     {n}     {n / 10}  0.1\n" for n in TENTHS_BY_STEP),
        TENTHS_BY_STEP,
        "",
    ),
    "bold": (
        "| **Step** | **Reward** |\n|---|---|\n"
        + "".join(f"| **{n}** | {n * 10} % |\n" for n in TENTHS_BY_STEP),
        TENTHS_BY_STEP,
        "",
    ),
    "trl after a bar with commas": (
        "".join(
            f"  2%|#         | {n}/405 [03:44<2:26:29, 22.25s/it]\n{' ' * 40}\n{trl_line(n, n / 10)}\n"
            for n in TENTHS_BY_STEP
        ),
        TENTHS_BY_STEP,
        "progress bar",
    ),
    "blocks side by side": (
        (
            "| Step | Reward | Loss | Step | Reward | Loss |\n|---|---|---|---|---|---|\n"
            "| 1 | 0.1 | 0 | 3 | 0.3 | 0 |\n| 2 | 0.2 | 0 | | | |\n"
        ),
        TENTHS_BY_STEP,
        "",
    ),
    "remarks": (
        (
            "| Step | Reward | Loss |\n|---|---|---|\n| 1 (start) | 0.1 \u00b1 0.05 | \u22120.5 |\n"
            "| **step 2** | **0.2** (peak) | 0 |\n| `3` | 0.3 \u2191 | 0 |\n"
        ),
        TENTHS_BY_STEP,
        "",
    ),
    "below code with an open brace": (
        "".join(f"Response:\nint main() {{\n  return {n};\n{trl_line(n, n / 10)}\n" for n in TENTHS_BY_STEP),
        TENTHS_BY_STEP,
        "in units",
    ),
    "verl below a cut-off object": (
        "".join(
            f'[response] {{"name": "search",\nstep:{n} - critic/score/mean:{n / 10} - actor/lr:0.1\n'
            for n in TENTHS_BY_STEP
        ),
        TENTHS_BY_STEP,
        "",
    ),
    "beside objects in completions": (
        "".join(
            f'{{"name": "pay", "reward": 50, "steps": {n}}}\n{trl_line(n, n / 10)}\n' for n in TENTHS_BY_STEP
        ),
        TENTHS_BY_STEP,
        "in units",
    ),
    "after a bar without a line break": (
        "".join(
            f"{progress_bar(n - 1)[1:]}Step {n}: reward: {n / 10}, kl: 0.1\n{progress_bar(n)}"
            for n in TENTHS_BY_STEP
        ),
        TENTHS_BY_STEP,
        "",
    ),
    "a grid in scientific notation": (
        "".join(
            f"Train step {n}/3 done.\n╒══╤══╕\n"
            f"│ ppo_actor/task_reward/avg │ {n / 10:.4e} │ ppo_actor/entropy/avg │ 3.0000e-01 │\n"
            for n in TENTHS_BY_STEP
        ),
        TENTHS_BY_STEP,
        "",
    ),
    "yaml": (
        "".join(
            f"Step {n}\nactor:\n  kl_loss: 0.1\ncritic:\n  advantages:\n    mean: 0.0\n"
            f"  score:\n    mean: {n / 10}\n"
            f"response_length:\n  mean: 9.0\nval:\n  accuracy_reward: 0.5\n\n"
            for n in TENTHS_BY_STEP
        ),
        TENTHS_BY_STEP,
        "",
    ),
    "a panel that names its step": (
        "".join(
            f"╭─ Metrics ─╮\n│  objective  kl_avg: 0.1 | kl3_avg: 0.1 |  │\n"
            f"│  other      episode: 512 | training_step: {n} | scores: {n / 10}  │\n"
            f"│  policy     entropy_avg: 0.70  │\n╰──╯\n"
            for n in TENTHS_BY_STEP
        ),
        TENTHS_BY_STEP,
        "",
    ),
    "a panel with its step above": (
        "".join(
            f"╭─╮\n│ Global Step:    {n}/9 │ ETA: 03:18 │\n│reward={n / 10}   │actor/grad_norm=0.4  │\n╰─╯\n"
            for n in TENTHS_BY_STEP
        ),
        TENTHS_BY_STEP,
        "",
    ),
    "spaced pairs after a logger": (
        "".join(f"INFO:__main__:step {n} loss 0.1 reward {n / 10}\n" for n in TENTHS_BY_STEP),
        TENTHS_BY_STEP,
        "",
    ),
    "iterations": (
        "".join(f"[INFO] it {n}: loss 0.1, reward {n / 10}\n" for n in TENTHS_BY_STEP),
        TENTHS_BY_STEP,
        "",
    ),
    "below panels of completions": (
        "".join(
            f"╭─ Step {n} ─╮\n│ │ Step {n + 1}: add │ 1.00 │ │\n│ │ Total: 12   │      │ │\n"
            f"╰─╯\n{trl_line(n, n / 10)}\n"
            for n in TENTHS_BY_STEP
        ),
        TENTHS_BY_STEP,
        "",
    ),
    "below a sample in a box": (
        "".join(
            f"Step {n}\n╭─ Sample ─╮\n│ reward: 1.0 │\n╰─╯\nreward: {n / 10}\nkl: 0.1\n"
            for n in TENTHS_BY_STEP
        ),
        TENTHS_BY_STEP,
        "",
    ),
    "rows without some of the usual names": (
        "".join(
            f"{{'reward': {n / 10}, 'skipped': 1}}\n"
            if n == 2
            else f"{{'reward': {n / 10}, 'loss': 0.1, 'kl': 0.1, 'entropy': 0.5}}\n"
            for n in TENTHS_BY_STEP
        ).replace("{", "INFO {", 1),
        TENTHS_BY_STEP,
        "in their order",
    ),
    "numbers broken by the terminal": (
        "".join(
            f"{{'loss': 0.12345, 'grad_norm': 0.1\n2345, 'reward': {n / 10}, 'epoch': {n}}}\n"
            for n in TENTHS_BY_STEP
        ),
        TENTHS_BY_STEP,
        "epochs",
    ),
    "a table with both losses": (
        "step  training_loss  validation_loss  reward\n"
        + "".join(f"{n}  0.1  0.2  {n / 10}\n" for n in TENTHS_BY_STEP),
        TENTHS_BY_STEP,
        "",
    ),
    "a table of one run": (
        "name   | step | reward\n" + "".join(f"run-1  | {n} | {n / 10}\n" for n in range(1, 30)),
        {n: n / 10 for n in range(1, 30)},
        "",
    ),
    "html": (
        "<div><script><td>9</td></script><table><tr><th>Step</th><th>reward</th><th>kl</th></tr>"
        + "".join(f"<tr><td>{n}<td><b>{n / 10}</b></td><td>0</td></tr>" for n in TENTHS_BY_STEP)
        + "</table>",
        TENTHS_BY_STEP,
        "",
    ),
}


@pytest.mark.parametrize("form", OUTPUT_FORMS)
def test_every_form_gives_the_reward_at_its_steps_and_the_report_explains_how(form):
    text, expected, sentence = OUTPUT_FORMS[form]
    [plan] = read(text)
    assert curve(plan) == pytest.approx(expected)
    assert sentence in notes(plan) + " ".join(column.reason for column in plan.decisions)


def test_a_notebook_is_read_by_its_tables_and_its_printed_output():
    def notebook(output):
        return json.dumps({"cells": [{"cell_type": "code", "outputs": [output]}], "nbformat": 4}, indent=1)

    printed = {"output_type": "stream", "text": [f"{trl_line(n, n / 10)}\n" for n in (1, 2, 3)]}
    table = {"output_type": "display_data", "data": {"text/html": [OUTPUT_FORMS["html"][0]]}}
    for output in (printed, table):
        [plan] = read(notebook(output), "run.ipynb")
        assert curve(plan) == pytest.approx(TENTHS_BY_STEP)


def test_a_notebook_table_with_a_validation_loss_shows_metrics_of_the_evaluation():
    header = "".join(
        f"<th>{name}</th>" for name in ("Step", "Training Loss", "Validation Loss", "Reward", "Kl")
    )
    rows = "".join(f"<tr><td>{n}<td>0.1<td>0.2<td>{n / 10}<td>0.3</tr>" for n in TENTHS_BY_STEP)
    [plan] = read(f"<table><tr>{header}</tr>{rows}</table>", "run.html")
    assert curve(plan, "loss/total") == dict.fromkeys(TENTHS_BY_STEP, 0.1)
    assert curve(plan, "eval_reward") == pytest.approx(TENTHS_BY_STEP)
    assert {"reward/mean", "kl/k3"}.isdisjoint(plan.series)


LISTED_METRICS = [
    line
    for n in range(1, 9)
    for line in (f"Step {n}/8", f"  - Mean Reward: {n / 10}", "  - Generation KL Error: 0.1")
]
LOG_COLLECTORS = {
    "srun": lambda n, line: f"{n % 2}: {line}",
    "pdsh": lambda n, line: f"node-{n % 2}: {line}",
    "kubectl logs --timestamps": lambda n, line: f"2026-03-02T10:11:{n:02}.123456789Z {line}",
    "containerd": lambda n, line: f"2026-03-02T10:11:{n:02}.123456789Z stdout F {line}",
    "journalctl": lambda n, line: f"Mar 02 10:11:{n:02} gpu-1 python[123]: {line}",
    "docker compose": lambda _, line: f"trainer-1  | {line}",
    "logging": lambda n, line: f"[2026-03-02 10:11:{n:02},123] {line}",
    "Kaggle": lambda n, line: (
        "[,"[n > 0] + json.dumps({"stream_name": "stdout", "time": n, "data": line + "\n"})
    ),
    "Docker": lambda n, line: json.dumps(
        {"log": line + "\n", "stream": "stdout", "time": f"2026-03-02T10:11:{n:02}Z"}
    ),
    "Fluent Bit": lambda n, line: json.dumps({"date": n, "log": line, "kubernetes": {"pod_name": "a"}}),
    "loguru": lambda _, line: json.dumps({"text": line + "\n", "record": {"level": {"no": 20}}}),
    "CloudWatch": lambda n, line: json.dumps({"timestamp": n, "message": line, "ingestionTime": n}),
    "structlog": lambda n, line: json.dumps({"event": line, "level": "info", "timestamp": f"2026-11-29T{n}"}),
    "python-json-logger": lambda _, line: json.dumps({"message": line, "threadName": "main", "lineno": 7}),
    "python-json-logger alone": lambda _, line: json.dumps({"message": line}),
    "Google Cloud": lambda n, line: json.dumps({"textPayload": line, "insertId": f"{n}", "severity": "INFO"}),
}


@pytest.mark.parametrize("collector", LOG_COLLECTORS)
def test_what_a_log_collector_adds_to_each_line_is_undone(collector):
    lines = map(LOG_COLLECTORS[collector], range(len(LISTED_METRICS)), LISTED_METRICS)
    [plan] = read("\n".join(lines) + ("\n]\n" if collector == "Kaggle" else "\n"))
    assert curve(plan) == pytest.approx({step: step / 10 for step in range(1, 9)})


def _google_cloud(payload):
    return lambda n, line: (
        {"insertId": f"x{n}", "labels": {"pod": "a"}, "logName": "projects/p/logs/stdout"}
        | {"resource": {"labels": {}, "type": "k8s_container"}, "severity": "INFO"}
        | payload(line)
        | {"timestamp": f"2026-03-02T10:11:{n:02}.123456789Z"}
    )


LISTS_OF_ENTRIES = {
    "gcloud logging read": _google_cloud(lambda line: {"textPayload": line}),
    "google-cloud-logging": _google_cloud(lambda line: {"jsonPayload": {"message": line, "level": "INFO"}}),
    "aws logs": lambda n, line: {"timestamp": 1772446260000 + n, "message": line, "ingestionTime": n},
    "CloudWatch Insights": lambda n, line: {"@timestamp": f"2026-03-02 10:11:{n:02}.000", "@message": line},
    "Grafana": lambda n, line: {"line": line, "timestamp": f"{1772446260 + n}000000000", "fields": {}},
}


@pytest.mark.parametrize("collector", LISTS_OF_ENTRIES)
@pytest.mark.parametrize("is_newest_first", [False, True])
def test_a_document_with_a_list_of_entries_is_read_in_the_order_of_time(collector, is_newest_first):
    entries = list(map(LISTS_OF_ENTRIES[collector], range(len(LISTED_METRICS)), LISTED_METRICS))
    entries = entries[::-1] if is_newest_first else entries
    [plan] = read(json.dumps({"events": entries} if collector == "aws logs" else entries, indent=2))
    assert curve(plan) == pytest.approx({step: step / 10 for step in range(1, 9)})


def test_a_table_of_entries_is_read_in_the_order_of_time():
    rows = [f'2026-03-12 10:22:1{n},"step {n}: reward=0.{n}, loss=0.1",abc' for n in range(1, 4)]
    for lines in (rows, rows[::-1]):
        [plan] = read("\n".join(["Time,Line,id", *lines]) + "\n")
        assert curve(plan) == {1: 0.1, 2: 0.2, 3: 0.3}


def test_objects_that_were_printed_to_google_cloud_are_rows():
    entry = _google_cloud(lambda line: {"jsonPayload": json.loads(line)})
    entries = [entry(n, json.dumps({"step": n, "reward": n / 10, "message": "done"})) for n in range(1, 9)]
    [plan] = read(json.dumps(entries[::-1], indent=2))
    assert curve(plan) == pytest.approx({step: step / 10 for step in range(1, 9)})


def test_numbers_of_steps_at_the_start_of_lines_are_no_tasks_of_srun():
    [plan] = read("".join(f"{n}: step {n}, reward: {n / 10}, kl: 0.1\n" for n in range(1, 40)))
    assert len(curve(plan)) == 39


def test_an_evaluation_belongs_to_the_training_step_before_it():
    evaluation = "{'eval_loss': '0.1', 'eval_rewards/accuracy_reward/mean': '0.75', 'epoch': '0.5'}\n"
    [plan] = read(TRL_WITH_BARS + progress_bar(2, 2) + evaluation + TRL_SUMMARY)
    assert curve(plan, "eval/accuracy") == {20: 0.75}
    assert "mean counts" not in notes(plan)  # both have the same epoch
    assert plan.log.metadata.config["training_summary"]["train_runtime"] == 9.1


def test_an_evaluation_on_a_line_without_a_step_belongs_to_the_line_before_it():
    lines = [f"Step {step}, mean_reward: 0.{step}, entropy: 0.5\n" for step in range(1, 5)]
    [plan] = read("".join([*lines[:2], "Eval success rate: 0.25\n", *lines[2:], "Eval success rate: 0.5\n"]))
    assert curve(plan, "eval/accuracy") == {2: 0.25, 4: 0.5}


EVALUATIONS = {
    "word before": ("[train] step 1 reward=0.5 kl=0", "[eval] step 1 reward=0.25"),
    "segment": ("step 1 | train | reward 0.5 ± 0.1 | kl 0", "step 1 | val | reward 0.25 | kl 0"),
    "label": ("step=1 phase=train reward=0.5 kl=0", "step=1 reward=0.25 phase=test"),
    "line without step": ("Step 1: reward=0.5 kl=0", "10:00:01 INFO Validation: reward=0.25, loss=1"),
    "sentence": ("Step 1: reward=0.5 kl=0", "Validation after training step 1: reward=0.25"),
    "same line": ("step 1: train reward=0.5 kl=0 | eval reward=0.25", ""),
    "heading above a line": ("step 1 reward=0.5 kl=0", "=== EVAL ===\nstep 1 | reward 0.25 | kl 1"),
    "heading above a list": (
        "Step 1:\n  Train:\n  reward: 0.5\n  kl: 0",
        "  Eval:\n  reward: 0.25\n  kl: 1",
    ),
    "heading with a step": ("Step 1: reward=0.5 kl=0", "** Evaluation at step 1 **\nreward: 0.25\nkl: 1"),
    "object": ('A {"step": 1, "reward": 0.5}', 'A {"step": 1, "split": "val", "reward": 0.25}'),
    "table": ("| step | Split | reward |\n| 1 | train | 0.5 |", "| 1 | eval | 0.25 |"),
}


@pytest.mark.parametrize("form", EVALUATIONS)
def test_metrics_that_a_word_marks_as_an_evaluation_are_not_of_the_training(form):
    training_line, evaluation = EVALUATIONS[form]
    [plan] = read(f"{training_line}\n{evaluation}\n")
    assert curve(plan) == {1: 0.5}
    assert curve(plan, "eval/reward") == {1: 0.25}


@pytest.mark.parametrize("line", [
    "[gsm8k-test] step {} reward=0.5", "eval step {}: reward=0.5", "time=1.5 env=dev step={} reward=0.5",
    "step {} | val acc n/a | valid: 58/64 | reward: 0.5 | kl: 0", "loss=1 step {} dataset=test reward=0.5",
    "step {}: unit test pass=0.7, std dev 0.1, reward=0.5, eval accuracy=0.4",
])  # fmt: skip
def test_words_that_are_no_labels_or_on_every_line_mark_nothing(line):
    [plan] = read("".join(f"{line.format(step)}\n" for step in (1, 2, 3)))
    assert curve(plan) == {1: 0.5, 2: 0.5, 3: 0.5}


@pytest.mark.parametrize("line", [
    "step 3 (new best val!) reward=0.5", "[test] step 3 reward=0.5", "=== EVAL ===\nstep 3 reward=0.5",
    "Let us test: length = 7 and accuracy = 3.\nstep 3 reward=0.5",
])  # fmt: skip
def test_a_label_that_would_take_a_step_from_the_training_is_not_trusted(line):
    [plan] = read(f"step 1 reward=0.5\nstep 2 reward=0.5\n{line}\n")
    assert curve(plan) == {1: 0.5, 2: 0.5, 3: 0.5}
    assert list(plan.series) == ["reward/mean"]


@pytest.mark.parametrize("lines", [
    "[test-run] step {} reward=0.5 kl=1\nstep {} loss=0.5\n",
    "[rollout] step {} mode=eval reward=0.5\n[update] step {} mode=train loss=0.1\n",
    "step {} | gen: length=9 | eval: reward=0.5 | train: loss=0.1\n",
    "step {} reward=0.5\nEvaluating...\nstep {} loss=0.5\n",
    "[rank0]: step {} reward=0.5\n[rank1]: **Evaluation:**\n[rank1]: step {} reward=0.5\n",
], ids=["experiment", "phases", "groups", "heading", "ranks"])  # fmt: skip
def test_a_label_that_would_take_a_metric_from_the_training_is_not_trusted(lines):
    [plan] = read("".join(lines.replace("{}", str(step)) for step in range(1, 9)))
    assert curve(plan) == dict.fromkeys(range(1, 9), 0.5)


@pytest.mark.parametrize(
    ("heading", "step"), [("eval: ", 2), ("Evaluation:\n", 2), ("Final evaluation on GSM8K test:\n", 4)]
)
def test_an_evaluation_among_objects_without_steps_is_no_step(heading, step):
    lines = [f"{{'reward': 0.{n}, 'loss': 0.1}}\n" for n in range(1, 5)]
    lines.insert(step, heading + "{'accuracy': 0.33, 'reward': 0.9}\n")
    [plan] = read("".join(lines))
    assert curve(plan) == {1: 0.1, 2: 0.2, 3: 0.3, 4: 0.4}
    assert curve(plan, "eval/accuracy") == {step: 0.33}


@pytest.mark.parametrize(
    "evaluation",
    [
        "Step {0} | Pass@1: 0.25, Pass@2: 0.5\n",
        "--- Evaluation (step {0}) ---\nAccuracy : 25%\n",
        "Validation @ {0}: accuracy=0.25, n=9\n",
        "step {0} eval accuracy 0.25 reward 0.9\n",
        "Accuracy: 16/64\n",
        "INFO - Eval accuracy: 0.25 reward: 0.9\n",
        ">>> Eval: acc 0.25\n",
        "Eval on 100 problems: accuracy 25%\n",
        "Test accuracy: 16/64 = 25%\n",
        "评估准确率: 0.25\n",
    ],
)
def test_an_accuracy_beside_lines_of_the_training_is_of_an_evaluation(evaluation):
    lines = [f"Step {n}/9 | Average reward: 0.{n} | kl: 0.1\n" for n in range(1, 9)]
    for step in (4, 2):
        lines.insert(step, evaluation.format(step))
    [plan] = read("".join(lines))
    assert curve(plan) == {n: n / 10 for n in range(1, 9)}
    assert curve(plan, "eval/accuracy") == {2: 0.25, 4: 0.25}
    assert "reward/accuracy" not in plan.series


@pytest.mark.parametrize(
    "text",
    ["reward: 1.0\n{}", "{}Score: 95\nReward: 10\n", "{}Train accuracy: 0.5\n{}Sample accuracy: 1\n{}"],
)
def test_a_single_result_without_a_step_is_no_metric(text):
    steps = iter(range(1, 100))
    block = "".join(f"step {{}} | loss: 0.{n} | kl: 0.1\n" for n in range(1, 9))
    text = text.format(*[block] * text.count("{}"))
    [plan] = read(
        "".join(line.format(next(steps)) if "{}" in line else line for line in text.splitlines(True))
    )
    assert {"reward/mean", "reward/accuracy", "eval/accuracy"}.isdisjoint(plan.series)


def test_a_baseline_before_the_first_step_does_not_shift_the_rewards():
    lines = [f"step {n} | loss: 0.1 | kl: 0.1\nMean reward: 0.{n}\n" for n in range(1, 5)]
    [plan] = read("Mean reward: 0.05\n" + "".join(lines))
    assert curve(plan) == {1: 0.1, 2: 0.2, 3: 0.3, 4: 0.4}


def test_an_evaluation_before_the_first_step_belongs_to_it():
    lines = [f"step {n} | reward: 0.{n} | kl: 0.1\n" for n in range(1, 5)]
    [plan] = read("Evaluation:\n  accuracy: 0.25\n" + "".join(lines))
    assert curve(plan, "eval/accuracy") == {1: 0.25}


def test_numbers_before_pairs_may_be_resumed_and_restarted():
    def lines(*numbers):
        return "".join(f"[{n}] loss 0.1 reward 0.{n}\n[{n}] kl 0.1 entropy 0.5\n" for n in numbers)

    [plan] = read(lines(1, 2, 3, 4, 3, 4, 5))
    assert curve(plan) == {1: 0.1, 2: 0.2, 3: 0.3, 4: 0.4, 5: 0.5}
    assert len(read(lines(*range(1, 9)) + lines(*range(1, 9)))) == 2


@pytest.mark.parametrize(
    "content",
    [
        'time,"message\n' + "x" * 200_000,
        "time\r,message\n1,2\n",
        '"time,message"\n1,2\n',
        "["
        + ",".join(['{"insertId": "a", "jsonPayload": {"loss": ' + "[" * 300 + "]" * 300 + "}}"] * 9)
        + "]",
        '{"events": [{"message": "a"}], "events": 3}',
    ],
)
def test_hostile_tables_and_lists_of_entries_are_no_error(content):
    with suppress(BadLog):
        read(content)


@pytest.mark.parametrize("share", ["acc: 16/64", "acc=16/64 groups=3/8", "correct 16/64"])
def test_a_share_of_right_answers_in_a_line_is_a_fraction(share):
    [plan] = read("".join(f"step {n} | reward: 0.5 | {share}\n" for n in range(1, 4)))
    assert curve(plan, "reward/accuracy") == {1: 0.25, 2: 0.25, 3: 0.25}


def test_a_heading_between_rows_without_steps_takes_none_of_them():
    for row, heading in (
        ("reward=0.{0} kl=0.1", "Evaluating..."),
        ("{{'reward': 0.{0}, 'kl': 0.1, 'epoch': 0.01}}", "Evaluating..."),
        ("{{'reward': 0.{0}, 'kl': 0.1}}", "Validation:"),
    ):
        lines = [row.format(number) for number in range(1, 5)]
        [plan] = read("\n".join([*lines[:2], heading, *lines[2:]]))
        assert curve(plan) == {1: 0.1, 2: 0.2, 3: 0.3, 4: 0.4}


def test_two_runs_with_names_in_brackets_are_both_trainings():
    runs = [
        f"[{name}] step {step} reward=0.5\n" for name in ("grpo-test", "grpo-main") for step in range(1, 9)
    ]
    assert [len(curve(plan)) for plan in read("".join(runs))] == [8, 8]


def test_an_evaluation_beside_the_regular_steps_of_the_training_is_one():
    training = [f"step {step} reward=0.5\n" for step in range(0, 50, 10)]
    [plan] = read("".join([*training[:3], "[eval] step 25 reward=0.25\n", *training[3:]]))
    assert list(curve(plan)) == [0, 10, 20, 30, 40]
    assert curve(plan, "eval/reward") == {25: 0.25}


def test_results_of_an_evaluation_in_a_list_end_at_the_next_heading():
    validation = "Starting validation at step 1...\nValidation Results:\n  - Accuracy: 0.25\n  - Time: 9\n"
    training = "Training Results:\n  - Loss: 0.1\n  - Avg Reward: 0.5\n"
    [plan] = read(f"=== Step 1/2 ===\n{validation}{training}=== Step 2/2 ===\n{training}")
    assert curve(plan) == {1: 0.5, 2: 0.5}
    assert curve(plan, "eval/accuracy") == {1: 0.25}


def test_each_set_of_problems_of_an_evaluation_has_its_curve():
    [plan] = read("step 1 reward=0.5\n[eval gsm8k] step 1 accuracy=0.25\n[eval aime] step 1 accuracy=0.75\n")
    assert curve(plan, "eval/gsm8k/accuracy") == {1: 0.25}
    assert curve(plan, "eval/aime/accuracy") == {1: 0.75}


def test_two_trainings_that_begin_with_an_evaluation_are_two_runs():
    lines = "[eval] step 0 accuracy=0.1\n" + "".join(f"step {step} reward=0.5\n" for step in range(1, 7))
    assert [curve(plan, "eval/accuracy") for plan in read(lines * 2)] == [{0: 0.1}, {0: 0.1}]


def test_an_evaluation_of_prime_rl_belongs_to_the_checkpoint_that_it_evaluates():
    text = "".join(
        f"09:0{step} SUCCESS Step {step} | Time: 12.1s | Reward: 0.{step} | Seq. Length: 90.1 tokens/sample\n"
        for step in range(9)
    )
    evaluation = (
        "09:12:09 INFO Running evals for checkpoint step 4\n"
        "09:12:09 SUCCESS Evaluated Qwen/Qwen3-4B on aime2024 in 34.30s (Avg@16=0.3200, Pass@8: 0.5100, "
        "No-response: 0.0%, Completion Length: 812.20 (±120.33, ∈[12.00, 2048.00]), Truncated: 3.2%)\n"
    )
    [plan] = read(text + evaluation)
    assert plan.restart_count == 0
    assert curve(plan) == {step: pytest.approx(step / 10) for step in range(9)}
    assert curve(plan, "eval/accuracy") == {4: 0.32}
    assert curve(plan, "eval/aime2024/truncated") == {4: pytest.approx(0.032)}


def test_objects_in_completions_and_printed_configs_are_not_rows():
    noise = "{'model': 'a', 'batch': 8, 'steps': 9}\nThe answer is {\"phase\": 3, \"green\": 20}.\n"
    [plan] = read(noise + TRL_WITH_BARS.replace("\n", "\n" + noise.split("\n")[1] + "\n"))
    assert list(curve(plan)) == [5, 10, 15, 20]
    assert "phase" not in plan.series
    assert "6 rows were left out: they look like a printed config" in notes(plan)


def test_two_trainings_in_one_text_are_two_runs_and_a_resume_is_one():
    training_text = "".join(f"step={n} reward={n / 10}\n" for n in range(1, 9))
    assert [len(curve(plan)) for plan in read(training_text + training_text)] == [8, 8]
    [plan] = read(training_text + "step=6 reward=0.9\nstep=7 reward=1.9\n")
    assert (curve(plan)[6], curve(plan)[7], plan.restart_count) == (0.9, 1.9, 1)
    assert len(read(TRL_WITH_BARS + TRL_SUMMARY + TRL_WITH_BARS)) == 2


def test_code_in_a_literal_is_never_evaluated():
    for text in (
        "{'a': __import__('os').getcwd()}",
        "{'a': (lambda: 1)()}",
        "{'a': [0] * 9**9}",
        "{'a': <object>}",
    ):
        with pytest.raises(ValueError, match=r"is no|nested"):
            read_object(text + " ", 0, is_last=False)
    text = "{'a': tensor(0.5, device='cuda:0', grad_fn=<MeanBackward0>), 'b': -inf, 'c': None}"
    assert read_object(text, 0, is_last=False)[0] == {
        "a": 0.5,
        "b": float("-inf"),
        "c": None,
    }


HOSTILE_TEXTS = {
    "prose": "Dear all,\nStep 1 was nice: 3 people came.\n",
    "fragments of bars": "\r 1%|#" * 200_000 + "\n",
    "bars without an end": " 1%|#| 1/9 [" * 100_000,
    "open objects": "{'a': [" * 50_000,
    "open objects on lines": "{'a': [\n" * 50_000,
    "open strings": "{'" * 100_000,
    "open strings on lines": "{'\n" * 50_000,
    "open objects beside an object": '{"a": "b"}\n' + "{\n" * 50_000,
    "boxes": "Step 1\n" + "".join(f"╭─\n│ n{n}: 1 │\n╰─\n" for n in range(20_000)),
    "keys": "Step 1\n" + "".join(f"{' ' * (n % 300)}k{n}:\n" for n in range(20_000)),
    "wrapped many times": "0: " * 2_000 + "\n" + ("0: " * 2_000 + "\n") * 20,
    "a word": "step 1 " + "a" * 1_000_000,
    "words": "step 1 " + "ab " * 2_000 + "\n",
    "open tags": "<table>" + "<td " * 100_000,
    "open scripts": "<html>" + "<script>" * 100_000,
    "bars of a table": "Step | reward\n" + "|" * 100_000,
}


@pytest.mark.parametrize("text", HOSTILE_TEXTS.values(), ids=HOSTILE_TEXTS)
def test_hostile_text_is_refused_in_one_sentence(text):
    with pytest.raises(BadLog, match=r"^(has|is) "):
        read(text)


def test_a_text_cut_within_a_line_or_character_keeps_the_remainder():
    [plan] = read((TRL_WITH_BARS + "{'loss': 0.1, 'rew").encode() + b"\xe2\x96")
    assert len(curve(plan)) == 4


def test_rows_of_another_table_are_not_blocks_of_the_one_before():
    steps = "| Step | Loss |\n|---|---|\n| 1 | 0.5 |\n| 2 | 0.4 |\n| 3 | 0.3 |\n"
    layers = "| layer | params | rank | alpha |\n|---|---|---|---|\n| 10 | 1024 | 8 | 16 |\n"
    [plan] = read(steps + layers)
    assert curve(plan, "loss/total") == {1: 0.5, 2: 0.4, 3: 0.3}


@pytest.mark.parametrize(
    ("column", "cell", "metric", "value"),
    [
        ("accuracy", "12/100 (12 %)", "reward/accuracy", 0.12),
        ("tokens", "1.5B", "tokens", 1.5e9),
        ("length", "120/1024", "length", None),
        ("model", "7B", "model", None),
    ],
)
def test_only_shares_of_right_answers_and_counts_of_tokens_have_fractions_and_units(
    column, cell, metric, value
):
    row = f"0.5 | {cell} |"
    [plan] = read(f"| step | reward | {column} |\n|---|---|---|\n| 1 | {row}\n| 2 | {row}\n| 3 | {row}\n")
    assert value is None or curve(plan, metric)[1] == pytest.approx(value)
    assert (value is None) == (len(plan.series) == 1)


def test_blocks_side_by_side_may_have_other_columns():
    header, first, second = "| step | reward | | step | kl |", "| 1 | 0.5 | | 10 | 0 |", "| 2 | 0.75 | | | |"
    [plan] = read(f"{header}\n{first}\n{second}\n")
    assert (curve(plan), curve(plan, "kl/k3")) == ({1: 0.5, 2: 0.75}, {10: 0.0})


def test_a_row_without_a_step_is_reported_and_ends_no_table():
    [plan] = read("| step | reward |\n| base | 0.1 |\n| 1 | 0.5 |\n| mean | 0.5 |\n| 2 | 0.5 |\n")
    assert curve(plan) == {1: 0.5, 2: 0.5}
    assert [bad.line for bad in plan.log.table.bad.first] == [2, 4]


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        ("\u22120.5 \u00b1 0.1", -0.5),
        ("\u22125%", -0.05),
        ("\u22121,234.5", -1234.5),
        ("0.5 [best]", 0.5),
    ],
)
def test_a_cell_with_a_remark_is_its_number(cell, value):
    [plan] = read(f"| Step | Reward |\n|---|---|\n| 1 | {cell} |\n| 2 | 0 |\n| 3 | 0 |\n")
    assert curve(plan)[1] == pytest.approx(value)


@pytest.mark.parametrize("cell", ["1\u00d710^-6", "2^-3", "0.10 \u2192 0.20", "0.10\u20130.20", "0.1; 0.2"])
def test_a_cell_with_another_number_is_left_out(cell):
    [plan] = read(
        f"| Step | Reward | KL |\n|---|---|---|\n| 1 | {cell} | 0 |\n| 2 | 0.5 | 0 |\n| 3 | 0 | 0 |\n"
    )
    assert 1 not in curve(plan)
