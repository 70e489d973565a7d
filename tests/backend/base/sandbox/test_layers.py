"""Tests of each layer of the sandbox: that it is active, and what it prevents without the others."""

import os
import signal
import socket
import sys
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from backend.base.locations import CODE_ROOT
from backend.base.plugin_permissions import Permissions
from backend.base.sandbox import bubblewrap, process
from backend.base.sandbox import layers as layers_module
from backend.base.sandbox.errors import Died, Refused, TimedOut
from backend.base.sandbox.layers import (
    SandboxIncomplete,
    check_sandbox,
    layers,
    missing_layers,
)
from backend.base.sandbox.paths import code_paths
from backend.base.sandbox.process import Sandbox
from backend.base.settings import Settings
from tests.waiting import wait_for

PROBES = "sandbox_probes"
TEST_DIRECTORY = Path(__file__).parent
SECRET = "the operator's own"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the layers are Linux's")


@pytest.fixture(scope="module", autouse=True)
def importable():
    """Let the sandbox find the probes as it finds a user's package."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(TEST_DIRECTORY))
        yield


@pytest.fixture(scope="module")
def probes(tmp_path_factory):
    """A sandbox with every layer."""
    settings = Settings(state_dir=tmp_path_factory.mktemp("state"))
    with Sandbox(PROBES, additional_paths=(TEST_DIRECTORY,), settings=settings) as sandbox:
        yield lambda op, seconds=30.0, **request: sandbox.run_operation(op, seconds=seconds, **request)


@pytest.fixture
def token(tmp_path):
    """A file that the sandbox must not show."""
    path = tmp_path / "token"
    path.write_text(SECRET)
    return str(path)


@pytest.fixture
def listener():
    """The port of a service on this machine."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@contextmanager
def sandbox_with(monkeypatch, *names, permissions=process.DEFAULT_PERMISSIONS, plugin=""):
    """Yield a sandbox with these layers and no other."""
    monkeypatch.setattr(process, "layer_names", lambda: {"on": list(names)})
    if "namespaces" not in names:
        monkeypatch.setattr(bubblewrap, "unavailable_reason", lambda: "switched off")
    with Sandbox(
        PROBES, permissions=permissions, plugin=plugin, additional_paths=(TEST_DIRECTORY,)
    ) as sandbox:
        yield lambda op, seconds=30.0, **request: sandbox.run_operation(op, seconds=seconds, **request)


def test_this_machine_supports_every_layer():
    assert [layer.name for layer in layers()] == [
        "environment",
        "descriptors",
        "namespaces",
        "landlock",
        "seccomp",
        "limits",
        "fork",
    ]
    assert missing_layers() == []


def test_the_sandbox_sees_only_named_variables(monkeypatch, tmp_path):
    monkeypatch.setenv("GRPOLAB_TOKEN", SECRET)
    monkeypatch.setenv("SOME_API_KEY", SECRET)
    with Sandbox(PROBES, additional_paths=(TEST_DIRECTORY,)) as sandbox:
        visible_variables = set(sandbox.run_operation("environment", seconds=30))
    fixed = {"PATH", "HOME", "TMPDIR", "PYTHONPATH", "PYTHONHASHSEED", "PYTHONDONTWRITEBYTECODE", "PWD"}
    fixed |= {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MPLBACKEND", "LC_CTYPE"}
    assert visible_variables <= fixed | set(process.INHERITED_VARIABLES)


def test_the_sandbox_has_no_open_file_except_its_reply_pipe(probes):
    descriptor = os.open(os.devnull, os.O_RDONLY)
    os.set_inheritable(descriptor, True)
    try:
        assert len(probes("descriptors")) == 1
    finally:
        os.close(descriptor)


def test_the_sandbox_can_read_code_and_no_other_file(probes, token):
    for path in (token, str(CODE_ROOT / "README.md"), str(Path.home()), "/proc/self/environ", "/etc/passwd"):
        assert probes("read", path=path) in ("ENOENT", "EACCES")
    assert probes("listing", path=str(CODE_ROOT)) in (
        ["backend", "tests", "worker"],
        ["backend", "worker"],
        "EACCES",
    )
    assert probes("read", path=str(CODE_ROOT / "backend" / "base" / "errors.py")).startswith('"""')


def test_the_sandbox_cannot_write_anywhere(probes):
    target_paths = [
        "/x",
        "/scratch/x",
        str(CODE_ROOT / "backend" / "x"),
        str(TEST_DIRECTORY / "x"),
        f"{sys.prefix}/x",
    ]
    assert {probes("write", path=path) for path in target_paths} <= {"EPERM", "EACCES", "EROFS"}


def test_the_sandbox_reaches_no_network_and_no_process(probes, listener):
    assert probes("connect", host="127.0.0.1", port=listener) == "EPERM"
    assert probes("send_signal", pid=os.getpid()) == "EPERM"
    assert probes("send_signal", pid=-1) == "EPERM"
    assert probes("trace") == "EPERM"
    assert probes("fork") == "EPERM"
    assert probes("start_program") == "EPERM"
    pid, parent = probes("processes")
    assert parent <= 3
    assert pid < 1000
    assert probes("user") == [65534, 65534]


def test_memory_time_and_files_of_the_sandbox_are_limited(probes):
    limits = probes("limits", seconds=5)
    assert (limits["RLIMIT_AS"], limits["RLIMIT_CORE"], limits["RLIMIT_FSIZE"]) == (4 * 2**30, 0, 0)
    assert limits["RLIMIT_CPU"] == 8
    assert 0 < limits["RLIMIT_NPROC"] <= 256
    assert probes("memory", bytes=5 * 2**30) == "MemoryError"
    with pytest.raises(TimedOut):
        probes("spin", seconds=0.3)
    with pytest.raises(Died, match="more than 4,000,000 bytes"):
        probes("flood")
    assert probes("memory", bytes=10) == 10


@pytest.mark.parametrize(
    "line", ['{"value": "forged"}\n', "nonsense\n", '{"prepared": true}\n', "[" * 200_000 + "\n"]
)
def test_a_request_can_forge_only_its_own_reply(probes, line):
    """A fork controls everything about its own reply, and the next reply comes from another fork."""
    with suppress(Died, Refused):
        assert probes("forge", line=line) in ("forged", "honest")
    assert probes("memory", bytes=7) == 7


def test_changes_made_by_one_request_are_gone_at_the_next(probes):
    with pytest.raises((Refused, Died)):
        probes("spoil")
    assert "SPOILT" not in probes("environment")
    assert len(probes("descriptors")) == 1


def test_the_reply_to_an_interrupted_request_is_not_returned_to_the_next(probes):
    def interrupt(_number, _frame):
        raise KeyboardInterrupt

    def request_nap():
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        probes("nap", rest=60, say="first")

    assert probes("nap", say="warm") == "warm"
    previous_handler = signal.signal(signal.SIGALRM, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            request_nap()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous_handler)
    assert probes("nap", say="second") == "second"


def test_namespaces_alone_hide_files_network_and_processes(monkeypatch, token, listener):
    with sandbox_with(monkeypatch, "namespaces") as probes:
        assert probes("read", path=token) == "ENOENT"
        assert probes("write", path=str(TEST_DIRECTORY / "x")) == "EROFS"
        assert probes("listing", path="/proc") == "ENOENT"
        assert probes("connect", host="127.0.0.1", port=listener) in ("ENETUNREACH", "ECONNREFUSED")
        # another process with this number
        assert probes("send_signal", pid=os.getpid()) in ("ESRCH", "reached")
        assert probes("processes")[1] <= 3


def test_landlock_alone_hides_files_network_and_processes(monkeypatch, token, listener):
    with sandbox_with(monkeypatch, "landlock") as probes:
        assert probes("read", path=token) == "EACCES"
        assert probes("read", path=f"/proc/{os.getpid()}/environ") == "EACCES"
        assert probes("write", path=token) == "EACCES"
        assert probes("connect", host="127.0.0.1", port=listener) == "EACCES"
        assert probes("send_signal", pid=os.getpid()) == "EPERM"
        assert probes("start_program") == "EACCES"


def test_seccomp_alone_stops_network_programs_and_writing(monkeypatch, tmp_path, listener):
    with sandbox_with(monkeypatch, "seccomp") as probes:
        assert probes("connect", host="127.0.0.1", port=listener) == "EPERM"
        assert probes("send_signal", pid=os.getpid()) == "EPERM"
        assert probes("fork") == probes("start_program") == probes("trace") == "EPERM"
        assert probes("write", path=str(tmp_path / "x")) == "EPERM"


def test_without_namespaces_a_plugin_changes_no_mode_or_time_of_a_file(monkeypatch, token):
    """Landlock does not restrict this: a plugin could make a token public or the state unreadable."""
    with sandbox_with(monkeypatch, "landlock", "seccomp", plugin=PROBES) as probes:
        assert probes("change_mode", path=token) == probes("touch", path=token) == "EPERM"
        assert probes("write", path=token) == "EACCES"
    with sandbox_with(monkeypatch, plugin=PROBES) as probes:
        assert (probes("change_mode", path=token), probes("touch", path=token)) == ("changed", "touched")


def test_without_namespaces_leftovers_of_a_plugin_are_removed_at_any_depth(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with sandbox_with(monkeypatch, "landlock", "seccomp", plugin=PROBES) as probes:
        with suppress(Died):
            probes("nest", deep=3000)
        assert probes("nap", say="next") == "next"
    assert list(tmp_path.iterdir()) == []


def test_without_any_layer_the_probes_succeed(monkeypatch, token, listener):
    """If the probes failed without a layer, the tests above would prove nothing."""
    with sandbox_with(monkeypatch) as probes:
        assert probes("read", path=token) == SECRET
        assert probes("connect", host="127.0.0.1", port=listener) == "connected"
        assert probes("send_signal", pid=os.getpid()) == "reached"
        assert probes("fork") == "forked"
        assert probes("trace") == "traced"
        assert probes("start_program") == 0


def test_an_operator_grants_network_variables_and_directories(monkeypatch, token, listener):
    monkeypatch.setenv("JUDGE_API_KEY", "k" * 20)
    permissions = Permissions(network=True, variables=("JUDGE_API_KEY",), directories=(Path(token).parent,))
    with Sandbox(PROBES, permissions=permissions, additional_paths=(TEST_DIRECTORY,)) as sandbox:
        assert sandbox.run_operation("connect", host="127.0.0.1", port=listener, seconds=30) == "connected"
        assert "JUDGE_API_KEY" in sandbox.run_operation("environment", seconds=30)
        assert sandbox.run_operation("read", path=token, seconds=30) == SECRET
        assert sandbox.run_operation("write", path=token, seconds=30) in ("EPERM", "EACCES", "EROFS")
        assert sandbox.run_operation("fork", seconds=30) == "EPERM"


def test_programs_that_an_operator_permits_end_with_the_call():
    with Sandbox(
        PROBES, permissions=Permissions(processes=True), additional_paths=(TEST_DIRECTORY,)
    ) as sandbox:
        assert sandbox.run_operation("start_program", seconds=30) == 0
        assert sandbox.run_operation("linger", seconds=30) == "left"
        outermost = psutil.Process(sandbox.pid)
        # The first process and the warm parent remain.
        wait_for(lambda: len(outermost.children(recursive=True)) <= 2)


def test_a_path_that_holds_home_or_state_is_never_shown(monkeypatch, tmp_path):
    state = tmp_path / "lab" / "state"
    state.mkdir(parents=True)
    settings = Settings(state_dir=state)
    for entry in (str(tmp_path), str(tmp_path / "lab"), str(state), str(Path.home()), "/"):
        monkeypatch.syspath_prepend(entry)
    paths = code_paths(settings)
    assert not [path for path in paths if path == state or path in state.parents]
    assert not [path for path in paths if path == Path.home() or path in Path.home().parents]


def test_a_missing_layer_is_named_and_can_be_required(monkeypatch):
    monkeypatch.setattr(bubblewrap, "unavailable_reason", lambda: "the system does not allow user namespaces")
    layers.cache_clear()
    try:
        assert [layer.name for layer in missing_layers()] == ["namespaces"]
        check_sandbox(Settings())
        with pytest.raises(
            SandboxIncomplete, match="lacks namespaces: the system does not allow user namespaces"
        ):
            check_sandbox(Settings(sandbox="required"))
    finally:
        monkeypatch.undo()
        layers.cache_clear()


@pytest.fixture
def remove_layers(monkeypatch):
    """A function that removes layers from this machine."""

    def remove_named(*names):
        removed_layers = [layer for layer in layers() if layer.name in names]
        monkeypatch.setattr(layers_module, "missing_layers", lambda: removed_layers)

    return remove_named


def test_programs_are_refused_if_nothing_hides_files(remove_layers):
    def count_descriptors(value="auto", **kind):
        settings = Settings(sandbox=value)
        with Sandbox(PROBES, additional_paths=(TEST_DIRECTORY,), settings=settings, **kind) as sandbox:
            return len(sandbox.run_operation("descriptors", seconds=30))

    programs, plugin = {"runs_programs": True}, {"plugin": PROBES}
    remove_layers("landlock")
    assert count_descriptors(**programs) == 1
    remove_layers("namespaces", "landlock")
    for kind in (programs, plugin):
        with pytest.raises(SandboxIncomplete, match="plugins and the tool python are refused"):
            count_descriptors(**kind)
    assert count_descriptors() == 1
    assert count_descriptors("unconfined", **programs) == 1
