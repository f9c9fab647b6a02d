"""The image and the Compose files of deploy/, checked against this WTB without a container engine."""

from __future__ import annotations

import base64
import contextlib
import fnmatch
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from http.client import HTTPConnection
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
import yaml
from packaging.requirements import Requirement
from redis import Redis
from redis.exceptions import AuthenticationError
from sqlalchemy import make_url

from tests.support.databases import QUICK
from tests.support.project import Outcome, Project, Running, run_program
from wtb.config.run_options import Run
from wtb.hosting.servers.postgres import PostgresServer, connect, find_binaries, role_url
from wtb.hosting.servers.server import NOBODY, as_server, free_port, is_root
from wtb.hosting.servers.valkey import ValkeyServer, find_binary
from wtb.store.database import Database
from wtb.store.tables.walls import SERVER, WORKER

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
FILES = sorted(DEPLOY.glob("compose*.yaml"))
ROLES = ("migrate", "worker", "scheduler", "flower", "wtb")
SERVERS = ("postgres", "redis")
SECRETS = {
    "POSTGRES_PASSWORD": "f7g8", "WTB_DATABASE_PASSWORD": "a1b2", "WTB_WORKER_PASSWORD": "h9i0",
    "WTB_SERVER_PASSWORD": "j1k2", "REDIS_PASSWORD": "c3d4", "WTB_FLOWER_AUTH": "ann:e5f6",
}  # fmt: skip
LAN = {
    "WTB_LAN_ADDRESS": "10.0.0.1",
    "WTB_HOST": "bench.example",
    "WTB_SERVER_TOKEN": "g9h0",
    "WTB_OIDC_SECRET": "i1j2",
}

_VARIABLE = re.compile(r"\$\$|\$\{(\w+)(?:(:-|:\?)([^}]*))?\}")
_SECONDS = {"s": 1, "m": 60}


class Missing(Exception):
    """A variable that a Compose file requires."""


class _Loader(yaml.SafeLoader):
    """YAML with the tag by which a Compose file resets a key of another one."""


_Loader.add_constructor("!reset", lambda loader, node: None)


def read(file: Path, environment: Mapping[str, str]) -> dict[str, Any]:
    """Read a Compose file and fill in its variables, as Compose does. Raises Missing."""

    def substitute(match: re.Match[str]) -> str:
        name, operator, rest = match.groups()
        if name is None:
            return "$"
        if not environment.get(name) and operator == ":?":
            raise Missing(f"{name}: {rest}")
        return environment.get(name) or (rest if operator == ":-" else "")

    loaded: dict[str, Any] = yaml.load(_VARIABLE.sub(substitute, file.read_text("utf-8")), _Loader)
    return loaded


def services(*names: str) -> dict[str, Any]:
    """Merge the services of Compose files: keys of later files replace or extend those of earlier ones."""
    merged: dict[str, Any] = {}
    for name in names:
        for service, keys in read(DEPLOY / name, SECRETS | LAN)["services"].items():
            current = merged.setdefault(service, {})
            for key, new in keys.items():
                both = isinstance(new, type(current.get(key)))
                current[key] = current[key] | new if both and isinstance(new, dict) else new
    return merged


STACK = services("compose.yaml")


def seconds(duration: str) -> int:
    return sum(int(number) * _SECONDS[unit] for number, unit in re.findall(r"(\d+)([a-z]+)", duration))


# The Compose files.


def variables(text: str) -> dict[str, str | None]:
    """Return the variables that a Compose file reads, with their defaults."""
    matches = (match.groups() for match in _VARIABLE.finditer(text))
    return {name: rest if operator == ":-" else None for name, operator, rest in matches if name}


def settings() -> dict[str, str]:
    lines = (DEPLOY / ".env.example").read_text("utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def test_every_variable_is_in_the_example_of_settings_with_its_default() -> None:
    read_by_files = [variables(file.read_text("utf-8")) for file in FILES]
    assert {name for defaults in read_by_files for name in defaults} | {"COMPOSE_FILE"} == settings().keys()
    for defaults in read_by_files:
        for name, default in defaults.items():
            assert default in (None, settings()[name]), name


@pytest.mark.parametrize("name", SECRETS)
def test_a_missing_secret_is_refused(name: str) -> None:
    with pytest.raises(Missing, match=name):
        read(DEPLOY / "compose.yaml", {key: secret for key, secret in SECRETS.items() if key != name})


def test_the_example_of_settings_has_no_secret_and_names_files_that_are_there() -> None:
    assert {settings()[name] for name in SECRETS} == {""}
    named = (DEPLOY / ".env.example").read_text("utf-8")
    assert {file.name for file in FILES} == set(re.findall(r"compose[\w.]*\.yaml", named)) | {"compose.yaml"}


def test_servers_are_reached_by_the_roles_and_from_the_private_network_only() -> None:
    assert read(DEPLOY / "compose.yaml", SECRETS)["networks"]["servers"] == {"internal": True}
    for name in SERVERS:
        assert STACK[name]["networks"] == ["servers"]
    assert {name for name, service in STACK.items() if "ports" in service} == {"flower"}
    assert STACK["flower"]["ports"] == ["127.0.0.1:5555:5555"]
    published = services("compose.yaml", "compose.lan.yaml")
    assert published["postgres"]["ports"] == ["10.0.0.1:5432:5432"]
    assert published["redis"]["ports"] == ["10.0.0.1:6379:6379"]


@pytest.mark.parametrize("name", STACK)
def test_a_container_can_do_no_more_than_it_needs(name: str) -> None:
    service = STACK[name]
    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["logging"] == {"driver": "local"}, "a log that grows without bounds fills the disk"
    assert not {"privileged", "cap_add", "network_mode", "pid", "ipc"} & service.keys()
    assert not any("docker.sock" in str(volume) for volume in service.get("volumes", ()))
    assert service["user"] != "root" if name in SERVERS else "user" not in service


@pytest.mark.parametrize("name", [name for name in STACK if name not in ("migrate", "wtb")])
def test_what_stays_up_is_limited_and_started_again(name: str) -> None:
    service = STACK[name]
    assert service["restart"] == "unless-stopped"
    assert service["deploy"]["resources"]["limits"].keys() >= {"memory", "pids"}


def test_roles_wait_for_the_tables() -> None:
    done = {"condition": "service_completed_successfully"}
    for name in ("worker", "scheduler", "flower", "wtb"):
        assert STACK[name]["depends_on"]["migrate"] == done
    assert STACK["migrate"]["depends_on"] == {"postgres": {"condition": "service_healthy"}}
    assert STACK["migrate"]["restart"] == "no"


def test_a_machine_with_workers_only_starts_nothing_else() -> None:
    machine = services("compose.yaml", "compose.project.yaml", "compose.workers.yaml")
    assert [name for name, service in machine.items() if not service.get("profiles")] == ["worker"]
    for name in ("worker", "wtb"):
        assert machine[name]["depends_on"] is None
        environment = machine[name]["environment"]
        assert environment.keys() == STACK[name]["environment"].keys()
        role = "wtb_worker:h9i0" if name == "worker" else "wtb:a1b2"
        assert environment["WTB_DATABASE_URL"] == f"postgresql://{role}@10.0.0.1:5432/wtb"
        assert environment["WTB_BROKER_URL"] == "redis://:c3d4@10.0.0.1:6379/0"


def test_the_server_is_reached_through_the_proxy_alone_and_believes_nobody_else() -> None:
    served = read(DEPLOY / "compose.serve.yaml", SECRETS | LAN)
    server, caddy = served["services"]["server"], served["services"]["caddy"]
    assert "ports" not in server
    address = caddy["networks"]["front"]["ipv4_address"]
    assert [argument for argument in server["command"] if argument.startswith("--proxy")] == [f"--proxy={address}"]
    assert "--allow=bench.example" in server["command"]
    assert server["environment"]["WTB_DATABASE_URL"] == "postgresql://wtb_server:j1k2@postgres:5432/wtb"
    assert server["networks"] == ["servers", "front"]
    assert "servers" not in caddy["networks"]
    assert served["networks"]["front"]["internal"]
    for service in (server, caddy):
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]
        assert service["deploy"]["resources"]["limits"].keys() >= {"memory", "pids"}
    with pytest.raises(Missing, match="WTB_SERVER_TOKEN"):
        read(DEPLOY / "compose.serve.yaml", {**SECRETS, "WTB_HOST": "bench.example"})


def test_the_project_is_mounted_where_the_image_looks_for_it() -> None:
    workdir = re.findall(r"(?m)^WORKDIR (.+)$", DOCKERFILE)[-1]
    for name in ("worker", "scheduler", "wtb"):
        (mount,) = services("compose.project.yaml")[name]["volumes"]
        assert (mount["target"], mount["read_only"]) == (workdir, True)


def test_compose_itself_takes_the_files(tmp_path: Path) -> None:
    if not shutil.which("docker") or subprocess.run(["docker", "compose", "version"], capture_output=True).returncode:
        pytest.skip("there is no `docker compose` here")
    given = SECRETS | LAN
    environment = {key: setting or given[key] for key, setting in settings().items() if key != "COMPOSE_FILE"}
    (tmp_path / ".env").write_text("".join(f"{key}={setting}\n" for key, setting in environment.items()), "utf-8")
    for extra in ("compose.project.yaml", "compose.lan.yaml", "compose.workers.yaml", "compose.serve.yaml"):
        command = ["docker", "compose", "--env-file", tmp_path / ".env", "-f", DEPLOY / "compose.yaml"]
        run_program([*command, "-f", DEPLOY / extra, "config", "--quiet"], code=0)


# The image.


DOCKERFILE = re.sub(r"\\\n\s*", "", (DEPLOY / "Dockerfile").read_text("utf-8"))
BUILD, LAST = re.split(r"(?m)^FROM ", DOCKERFILE)[1:]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS = ("workers", "server", "sheets", "oidc", "metrics", "mcp", "logs", "telemetry")  # that the image has


def copied(stage: str) -> list[str]:
    """Return the paths that a stage copies from the checkout."""
    lines = re.findall(r"(?m)^COPY (?!--from)(.+)$", stage)
    return [path for line in lines for path in shlex.split(line)[:-1] if not path.startswith("--")]


def installed() -> list[str]:
    """Return the requirements that the image installs, the checkout first."""
    (requirements,) = re.findall(r"(?m)^RUN .*pip install (.+)$", BUILD)
    return shlex.split(requirements)


def test_the_last_stage_is_nobody_special_and_builds_nothing() -> None:
    (user,) = re.findall(r"(?m)^USER (\d+):(\d+)$", LAST)
    assert "0" not in user
    assert re.search(rf"useradd --uid {user[0]} ", LAST)
    assert re.search(rf"groupadd --gid {user[1]} ", LAST)
    assert re.findall(r"apt-get install (?:--\S+ )*(\S+)", LAST) == ["tini"]
    assert "pip" not in LAST
    assert "STOPSIGNAL SIGTERM" in LAST
    assert 'ENTRYPOINT ["tini", "--", "wtb"]' in LAST


def test_folders_that_the_roles_write_belong_to_their_user() -> None:
    (folders,) = re.findall(r"install --directory --owner=wtb --group=wtb (.+)$", LAST, re.MULTILINE)
    volumes = {volume.rpartition(":")[2] for name in ROLES for volume in STACK[name].get("volumes", ())}
    named = {STACK[name]["environment"]["WTB_FILES"] for name in ROLES}
    assert volumes | named <= set(folders.split())


def test_the_build_sees_what_it_copies_and_little_else() -> None:
    lines = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    allowed = {rule[1:] for rule in rules if rule.startswith("!")}
    assert allowed == set(copied(BUILD)) | set(copied(LAST))
    assert not any(fnmatch.fnmatch("deploy/.env", path) for path in allowed)


def test_the_image_is_built_with_the_packages_that_the_project_asks_for() -> None:
    project, flower = installed()
    assert project == f".[{','.join(EXTRAS)}]"
    assert flower in PROJECT["optional-dependencies"]["stack"]


def required(*requirements: str) -> set[str]:
    """Return the names of the distributions that requirements install, including their dependencies."""
    seen: set[tuple[str, str]] = set()
    pending = [(parsed.name, extra) for parsed in map(Requirement, requirements) for extra in ("", *parsed.extras)]
    while pending:
        name, extra = requirement = pending.pop()
        if requirement in seen:
            continue
        seen.add(requirement)
        for parsed in map(Requirement, distribution(name).requires or ()):
            if parsed.marker is None or parsed.marker.evaluate({"extra": extra}):
                pending += [(parsed.name, more) for more in ("", *parsed.extras)]
    return {name for name, _ in seen}


@pytest.mark.slow
def test_the_roles_run_with_what_the_image_installs(tmp_path: Path) -> None:
    _, *requirements = installed()
    extras = [requirement for extra in EXTRAS for requirement in PROJECT["optional-dependencies"][extra]]
    for name in required(*PROJECT["dependencies"], *extras, *requirements):
        for file in distribution(name).files or ():
            top, place = file.parts[0], distribution(name).locate_file("")
            if top != ".." and not (tmp_path / top).exists():
                (tmp_path / top).symlink_to(Path(str(place)) / top)
    for folder in ("wtb", "workers/wtb_workers", "scheduler/wtb_scheduler"):
        (tmp_path / Path(folder).name).symlink_to(ROOT / folder)
    modules = "kombu.transport.redis, flower.command, wtb_workers.tasks, wtb_scheduler.rounds, "
    modules += "wtb.operations.garbage_collection, wtb.hosting.api.serve, wtb.hosting.api.provider"
    command = [sys.executable, "-S", "-c", f"import wtb.cli.main, wtb.execution.runner, wtb.store.database, {modules}"]
    env = {"PYTHONPATH": str(tmp_path), "WTB_BROKER_URL": "redis://127.0.0.1:1/0", "PYTHONDONTWRITEBYTECODE": "1"}
    run_program(command, env=env, cwd=tmp_path, code=0)


def test_what_the_build_copies_makes_the_whole_wheel(tmp_path: Path) -> None:
    source = tmp_path / "src"
    source.mkdir()
    ignored = shutil.ignore_patterns("__pycache__", ".wtb")
    for path in copied(BUILD):
        if (ROOT / path).is_dir():
            shutil.copytree(ROOT / path, source / path, ignore=ignored)
        else:
            shutil.copy(ROOT / path, source / path)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--wheel-dir", tmp_path, source], check=True, capture_output=True)
    (wheel,) = tmp_path.glob("workflow_test_bench-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        assert any(name.endswith("licenses/LICENSE") for name in archive.namelist())
    packages = {"wtb": ROOT, "wtb_workers": ROOT / "workers", "wtb_scheduler": ROOT / "scheduler"}
    for package, folder in packages.items():
        paths = {str(path.relative_to(folder)) for path in (folder / package).rglob("*") if path.is_file()}
        assert {name for name in paths if "__pycache__" not in name and ".wtb" not in name} <= names


# The servers, as their services start and check them.


@contextlib.contextmanager
def started(command: Sequence[str | Path], env: Mapping[str, str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run the process of a service, with its output in `folder`/log, and kill it at the end if it still runs."""
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(command, env={**os.environ, **env}, cwd=folder, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Run the command of the service `redis` with the server of `wtb up`, and yield its process and port."""
    (tmp_path / "redis-server").symlink_to(find_binary())
    port = free_port()
    *shell, script = STACK["redis"]["command"]
    assert "bind * -::*" in script
    script = script.replace("bind * -::*", f"bind 127.0.0.1\nport {port}")
    env = {**STACK["redis"]["environment"], "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    with started([*shell, script], env, tmp_path) as process:
        Project.until(lambda: "Ready to accept" in (tmp_path / "log").read_text("utf-8"), "Redis is ready")
        yield process, port


def test_redis_asks_for_its_password_and_keeps_nothing_on_disk(redis: tuple[subprocess.Popen[bytes], int]) -> None:
    process, port = redis
    with pytest.raises(AuthenticationError), Redis(port=port) as stranger:
        stranger.ping()
    with Redis(port=port, password=SECRETS["REDIS_PASSWORD"]) as client:
        assert client.ping()
        kept = {"save": "", "appendonly": "no", "maxmemory-policy": "noeviction"}
        assert client.config_get(*kept) == kept
        limit = int(client.config_get("maxmemory")["maxmemory"])
    assert 0 < limit < 512 * 2**20
    assert STACK["redis"]["deploy"]["resources"]["limits"]["memory"] == "512m"
    assert SECRETS["REDIS_PASSWORD"] not in " ".join(psutil.Process(process.pid).cmdline())
    assert "redis" in psutil.Process(process.pid).cmdline()[0], "the shell is gone, so that SIGTERM reaches the server"
    process.terminate()
    assert process.wait(10) == 0


@pytest.mark.parametrize("before", [True, False], ids=["a server of before", "a new server"])
def test_the_role_of_all_parts_is_no_superuser_and_owns_its_database(servers_folder: Path, before: bool) -> None:
    tool = shutil.which("psql") or str(find_binaries().folder / "psql")
    if not Path(tool).exists():
        pytest.skip("this PostgreSQL comes without psql")
    data_folder, port = servers_folder / f"role-{before}", free_port()
    with trusting_server(data_folder, port, "wtb" if before else "postgres"):
        server = f"postgresql://{{}}@127.0.0.1:{port}/{{}}"
        if before:
            with connect(server.format("wtb", "postgres")) as first:
                first.execute("CREATE DATABASE wtb")
            Database(server.format("wtb", "wtb")).prepare()
            for user, statement in upgrade_of_the_role():
                with connect(server.format(user, "postgres")) as connection:
                    connection.execute(statement)
        env = {**os.environ, **SECRETS}
        for _ in range(2):  # it may be run again
            script = [tool, "--no-psqlrc", f"--file={DEPLOY / 'role.sql'}", server.format("postgres", "postgres")]
            run_program(script, env=env, code=0)
        with connect(server.format("wtb", "wtb")) as connection:
            superusers = connection.execute("SELECT rolname FROM pg_roles WHERE rolsuper").fetchall()
            assert ("wtb",) not in superusers
            owner = "SELECT pg_get_userbyid(datdba) FROM pg_database WHERE datname = 'wtb'"
            assert connection.execute(owner).fetchone() == ("wtb",)
        Database(server.format("wtb", "wtb")).upgrade()  # what `migrate` does
        for role in (WORKER, SERVER):
            Database(server.format(role, "wtb")).prepare()
        with connect(server.format("wtb", "wtb")) as connection:
            policies = connection.execute("SELECT DISTINCT policyname FROM pg_policies").fetchall()
            assert {name for (name,) in policies} == {"owner", "worker", "server"}
            foreign = "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relowner <> "
            assert connection.execute(f"{foreign} 'wtb'::regrole").fetchall() == []


def upgrade_of_the_role() -> list[tuple[str, str]]:
    """Return the statements (user, SQL) before role.sql, by deploy/README.md, if `wtb` is the superuser."""
    text = (ROOT / "deploy" / "README.md").read_text("utf-8")
    commands = re.findall(r'psql --username=(\w+) --dbname=postgres --command="([^"]+)"', text)
    assert [user for user, _ in commands] == ["wtb", "upgrade", "postgres"]
    return commands[:2]


@contextlib.contextmanager
def trusting_server(cluster: Path, port: int, superuser: str) -> Iterator[None]:
    """A PostgreSQL that asks for no password, as within its container."""
    cluster.mkdir()
    if is_root():
        os.chown(cluster, NOBODY, NOBODY)
    folder = find_binaries().folder
    make = [str(folder / "initdb"), "-D", str(cluster), "-U", superuser, "--auth=trust", "--encoding=UTF8", "--no-sync"]
    subprocess.run(make, check=True, capture_output=True, **as_server())
    serve = [str(folder / "postgres"), "-D", str(cluster), "-c", f"port={port}", "-c", "unix_socket_directories="]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen([*serve, "-c", "listen_addresses=127.0.0.1"], **quiet, **as_server())

    def answers() -> bool:
        url = f"postgresql://{superuser}@127.0.0.1:{port}/postgres"
        with contextlib.suppress(psycopg.OperationalError), connect(url):
            return True
        return False

    try:
        Project.until(answers, "the server to answer")
        yield
    finally:
        process.send_signal(signal.SIGQUIT)
        process.wait()


def test_the_health_of_postgres_is_that_of_its_server(servers_folder: Path) -> None:
    tool, *options = STACK["postgres"]["healthcheck"]["test"][1:]
    check = find_binaries().folder / tool
    if not check.exists():
        pytest.skip(f"this PostgreSQL comes without {tool}")
    assert "--host=127.0.0.1" in options, "on its socket it answers too early"
    with PostgresServer(servers_folder / "deploy", settings=QUICK) as server:
        port = str(make_url(server.url).port)
        run_program([check, *options, "--port", port], code=0)
    run_program([check, *options, "--port", port], code=2)


# The roles, with the environment of their services but for the addresses of the servers.


class Containers:
    """The roles in a user's folder, each a process with the environment of its container."""

    def __init__(self, folder: Path, database_url: str, broker_url: str) -> None:
        self.project = Project(folder / "project")
        self.flower_port = str(free_port())
        self._database_url, self._broker_url = database_url, broker_url
        self._files = folder / "files"
        self._files.mkdir()
        shutil.copytree(ROOT / "wtb" / "cli" / "templates" / "init", self.project.folder, dirs_exist_ok=True)

    def environment(self, name: str) -> dict[str, str]:
        declared = STACK[name]["environment"]
        works = name in ("worker", "scheduler")
        role = "wtb_worker:h9i0" if works else "wtb:a1b2"
        assert declared["WTB_DATABASE_URL"] == f"postgresql://{role}@postgres:5432/wtb"
        assert declared["WTB_BROKER_URL"] == "redis://:c3d4@redis:6379/0"
        url = role_url(self._database_url, WORKER) if works else self._database_url
        local = {"WTB_DATABASE_URL": url, "WTB_BROKER_URL": self._broker_url, "WTB_FILES": str(self._files)}
        return self.project.environment({**declared, **local, "WTB_FLOWER_PORT": self.flower_port})

    def command(self, name: str) -> list[str]:
        return [part.replace("--port=5555", f"--port={self.flower_port}") for part in STACK[name]["command"]]

    def run(self, name: str, *command: str, check: int, **env: str) -> Outcome:
        """Run the command of a service, or another command instead, to its end."""
        env = self.environment(name) | env
        return self.project.inside(*(command or self.command(name)), env=env, check=check)

    def start(self, name: str) -> Running:
        return self.project.start(*self.command(name), env=self.environment(name), own=True)

    def is_healthy(self, name: str) -> bool:
        """Return the outcome of a service's health check."""
        kind, tool, *options = STACK[name]["healthcheck"]["test"]
        assert (kind, tool) == ("CMD", "wtb-health")
        command = [sys.executable, DEPLOY / "health.py", *options]
        done = run_program(command, env=self.environment(name))
        assert done.returncode in (0, 1), done.stderr
        assert "Traceback" not in done.stderr
        return done.returncode == 0

    def healthy(self, name: str) -> None:
        """Wait until a service is healthy."""
        self.project.until(lambda: self.is_healthy(name), f"{name} is healthy")


@pytest.fixture
def containers(tmp_path: Path, servers_folder: Path, fresh_postgres_url: str) -> Iterator[Containers]:
    """The roles with servers of their own, and tables that the service `migrate` made."""
    with ValkeyServer(servers_folder / f"valkey-{tmp_path.name}") as broker:
        roles = Containers(tmp_path, fresh_postgres_url, broker.url)
        roles.run("migrate", check=0)
        yield roles


def test_a_sweep_runs_on_the_roles_as_they_are_started(containers: Containers) -> None:
    assert "nothing to do" in containers.run("migrate", check=0).stdout
    assert not containers.is_healthy("worker")
    assert not containers.is_healthy("scheduler")
    with containers.start("worker") as worker, containers.start("scheduler") as scheduler:
        containers.healthy("worker")
        containers.healthy("scheduler")
        done = containers.run("wtb", "submit", "sweep.yaml", "--limit", "3", "--wait", check=0)
        assert "27 of 27" in done.stdout
        for role in (worker, scheduler):
            role.signal(signal.SIGTERM)
        worker.wait(check=0, timeout=seconds(STACK["worker"]["stop_grace_period"]))
        scheduler.wait(check=0, timeout=10)
    assert not containers.is_healthy("worker")
    assert not containers.is_healthy("scheduler")
    assert containers.project.node_processes() == []


def test_the_grace_of_a_worker_is_longer_than_that_of_sweeps() -> None:
    assert seconds(STACK["worker"]["stop_grace_period"]) > Run().grace + 30
    assert settings()["WTB_WORKER_GRACE"] == STACK["worker"]["stop_grace_period"]


def test_flower_is_behind_its_password(containers: Containers) -> None:
    assert not containers.is_healthy("flower")
    with containers.start("flower"):
        containers.healthy("flower")
        assert answer(containers.flower_port) == 401
        assert answer(containers.flower_port, "ann:wrong") == 401
        assert answer(containers.flower_port, SECRETS["WTB_FLOWER_AUTH"]) == 200
    assert not containers.is_healthy("flower")


def answer(port: str, login: str = "") -> int:
    """The status of one of Flower's pages."""
    headers = {"Authorization": "Basic " + base64.b64encode(login.encode()).decode()} if login else {}
    with contextlib.closing(HTTPConnection("127.0.0.1", int(port), timeout=10)) as connection:
        connection.request("GET", "/workers", headers=headers)
        return connection.getresponse().status


def test_flower_is_refused_without_a_password(tmp_path: Path) -> None:
    unused = Containers(tmp_path, "postgresql://wtb@127.0.0.1:1/wtb", "redis://127.0.0.1:1/0")
    done = unused.run("flower", check=2, WTB_FLOWER_AUTH="")
    assert "WTB_FLOWER_AUTH" in done.output
