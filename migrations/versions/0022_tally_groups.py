"""Tallies of groups, prompts of runs, and the reason why a group was left out of training.

Tallies of stored completions are made once; the reason is known of new groups only.
"""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None

FLAGS = (("truncated", 8), ("repetitive", 16), ("unparsed", 32), ("no_think", 64), ("language", 128))
SAME_REWARD, STORED = 1024, 65536

TALLIES = """
INSERT INTO group_tally
    (run_id, kind, step, prompt_index, attempt, number, prompt_id, marks, reward, completions, tokens)
SELECT run_id, kind, step, prompt_index, attempt,
    row_number() OVER (PARTITION BY id ORDER BY marks, reward) - 1,
    prompt_id, marks, reward, count(*), sum(tokens)
FROM (
    SELECT g.id, g.run_id, g.kind, g.step, g.prompt_index, g.attempt, g.prompt_id, r.reward, r.tokens,
        {marks} AS marks
    FROM rollout r JOIN rollout_group g ON g.id = r.group_id
) marked
GROUP BY id, run_id, kind, step, prompt_index, attempt, prompt_id, marks, reward
"""

PROMPTS = """
INSERT INTO run_prompt (run_id, id, problem, domain, prompt, answer)
SELECT g.run_id, g.prompt_id, g.problem, g.domain, g.prompt, g.answer
FROM rollout_group g
WHERE g.id IN (SELECT min(id) FROM rollout_group GROUP BY run_id, prompt_id)
"""


def upgrade() -> None:
    op.add_column("rollout_group", sa.Column("left_out", sa.String(16), nullable=False, server_default=""))
    op.create_table(
        "group_tally",
        sa.Column("run_id", sa.String(26), nullable=False),
        sa.Column("kind", sa.String(40), nullable=False),
        sa.Column("step", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("prompt_index", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("prompt_id", sa.Text(), nullable=False),
        sa.Column("marks", sa.Integer(), nullable=False),
        sa.Column("reward", sa.Float(53), nullable=True),
        sa.Column("completions", sa.Integer(), nullable=False),
        sa.Column("tokens", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint(
            "run_id", "kind", "step", "prompt_index", "attempt", "number", name=op.f("pk_group_tally")
        ),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "run_prompt",
        sa.Column("run_id", sa.String(26), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("problem", sa.Text(), nullable=False),
        sa.Column("domain", sa.Text(), nullable=False),
        sa.Column("prompt", sa.LargeBinary(), nullable=False),
        sa.Column("answer", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "id", name=op.f("pk_run_prompt")),
        sqlite_with_rowid=False,
    )
    op.execute(sa.text(TALLIES.format(marks=_marks())))
    op.execute(sa.text(PROMPTS))


def _marks() -> str:
    """The bits of backend.rollouts.marks as they were when this was written."""
    is_set = {"postgresql": "r.correct IS TRUE"}.get(op.get_bind().dialect.name, "r.correct = 1")
    flags = "CAST(r.flags AS TEXT)"
    terms = [
        (1, is_set),
        (2, f"(r.correct IS NOT NULL AND NOT ({is_set})) OR (r.correct IS NULL AND {_has(flags, 'wrong')})"),
        (4, "r.reward > 0"),
        (8, f"r.finish_reason = 'length' OR {_has(flags, 'truncated')}"),
        *((bit, _has(flags, name)) for name, bit in FLAGS[1:]),
        (256, "r.reward IS NULL"),
        (512, " OR ".join(_has(flags, name) for name in ("unscored", *(name for name, _ in FLAGS[1:])))),
    ]
    bits = " + ".join(f"CASE WHEN {condition} THEN {bit} ELSE 0 END" for bit, condition in terms)
    spread = "max(r.reward) OVER (PARTITION BY g.id) = min(r.reward) OVER (PARTITION BY g.id)"
    return f"{bits} + CASE WHEN {spread} THEN {SAME_REWARD} ELSE 0 END + {STORED}"


def _has(flags: str, name: str) -> str:
    return f"""{flags} LIKE '%"{name}"%'"""


def downgrade() -> None:
    op.drop_table("run_prompt")
    op.drop_table("group_tally")
    with op.batch_alter_table("rollout_group") as table:
        table.drop_column("left_out")
