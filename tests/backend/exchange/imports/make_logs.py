"""Generate the logs in `logs/` with the trainers and tools themselves.

Run it with `make import-fixtures`, which uses `.venv-trl`. One training of TRL's GRPOTrainer on the tiny
policy writes trainer_state.json, its completions as Parquet, a TensorBoard event file, an offline run of
W&B and a run of Trackio, whose database then gets a second run. `logs/versions.json` records which
versions wrote them. The logs contain nothing about the machine: paths are relative, and W&B collects no
system information. verl needs CUDA, so its logs are written by hand in the format of its loggers."""

import json
import os
import shutil
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

LOGS = Path(__file__).parent / "logs"
ROOT = Path(__file__).parents[4]
PACKAGES = ("trl", "transformers", "torch", "wandb", "tensorboard", "trackio", "pyarrow")
STEPS, EVERY = 12, 2


def train(directory: Path) -> None:
    """Train with GRPO on questions whose reward is the fraction of digits in the completion."""
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer

    def digits(completions: list[str], **_: object) -> list[float]:
        return [sum(character.isdigit() for character in text) / max(1, len(text)) for text in completions]

    shutil.copytree(ROOT / "worker" / "policy" / "tiny", directory / "tiny")
    policy = "./tiny"
    prompts = Dataset.from_list([{"prompt": f"{number}+1="} for number in range(8)])
    GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(policy),
        processing_class=AutoTokenizer.from_pretrained(policy),
        reward_funcs=digits,
        train_dataset=prompts,
        eval_dataset=prompts.select(range(4)),
        args=GRPOConfig(
            output_dir="out",
            run_name="tiny-digits",
            report_to=["tensorboard", "wandb", "trackio"],
            project="grpo",
            log_completions=True,
            use_cpu=True,
            bf16=False,
            seed=11,
            max_steps=STEPS,
            logging_steps=EVERY,
            eval_strategy="steps",
            eval_steps=STEPS // 2,
            per_device_train_batch_size=8,
            per_device_eval_batch_size=4,
            num_generations=4,
            max_completion_length=8,
            learning_rate=1e-3,
            beta=0.04,
            save_steps=STEPS,
        ),
    ).train()


def begin_wandb() -> None:
    """Start the W&B run that the trainer's callback logs to."""
    import wandb

    settings = wandb.Settings(
        mode="offline",
        silent=True,
        console="off",
        disable_git=True,
        disable_code=True,
        host="host",
        program="train.py",
        root_dir=".",
        x_disable_stats=True,
        x_disable_meta=True,
    )
    wandb.init(project="grpo", name="tiny-digits", settings=settings)


def add_second_trackio_run() -> None:
    """Log a short run to the same Trackio project, and export the database as Parquet."""
    import trackio
    from trackio.sqlite_storage import SQLiteStorage

    trackio.init(project="grpo", name="by hand", config={"seed": 12}, auto_log_gpu=False)
    for step, reward in enumerate((0.25, 0.5, float("nan"), float("inf"))):
        trackio.log({"reward": reward, "note": "words"}, step=step)
    trackio.finish()
    SQLiteStorage.export_for_static_space("grpo", Path("exported"))


SOURCE_BY_LOG = {
    "trainer_state.json": "out/checkpoint-*/trainer_state.json",
    "events.out.tfevents": "tensorboard/**/events.out.tfevents.*",
    "run.wandb": "wandb/offline-run-*/*.wandb",
    "completions.parquet": "out/completions/completions_00012.parquet",
    "trackio.db": "trackio/grpo.db",
    "trackio.parquet": "exported/metrics.parquet",
}


def main() -> None:
    """Train, and copy the logs to `logs/`."""
    os.environ |= {"HF_HUB_OFFLINE": "1", "TENSORBOARD_LOGGING_DIR": "tensorboard", "TRACKIO_DIR": "trackio"}
    import wandb

    with tempfile.TemporaryDirectory() as name:
        os.chdir(name)
        begin_wandb()
        train(Path(name))
        wandb.finish()
        add_second_trackio_run()
        for file_name, pattern in SOURCE_BY_LOG.items():
            shutil.copy(max(Path(name).glob(pattern)), LOGS / file_name)
    versions = {
        "python": sys.version.partition(" ")[0],
        **{package: version(package) for package in PACKAGES},
    }
    (LOGS / "versions.json").write_text(json.dumps(versions, indent=2) + "\n")


if __name__ == "__main__":
    main()
