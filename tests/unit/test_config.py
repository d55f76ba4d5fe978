"""``agent.yaml``, ``config=`` and the environment: what is read, and what is refused."""

from __future__ import annotations

import re
from base64 import b64encode, urlsafe_b64encode
from pathlib import Path
from typing import Any

import pytest

from durable_adk import config
from durable_adk._config_keys import KEYS, TOOL_KEYS
from durable_adk.errors import ConfigError
from tests.support.ids import shown

KEY = b64encode(bytes(range(32))).decode()
EXAMPLE = Path(__file__).parents[2] / "agent.yaml.example"


def load(given: Any = None, *, env: dict[str, str] | None = None) -> config.Settings:
    return config.load(given, environment=env or {}, default_file=None)


def refusal(given: Any, *, env: dict[str, str] | None = None) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load(given, env=env)
    return caught.value


def nested(key: str, value: object) -> dict[str, Any]:
    for part in reversed(key.split(".")):
        value = {part: value}
    assert isinstance(value, dict)
    return value


def test_defaults_are_those_of_the_design() -> None:
    settings = load()
    assert (settings.namespace, settings.collection_prefix) == ("default", "durable_")
    assert (settings.database, config.DEFAULT_DATABASE) == (None, "durable_adk")
    assert (settings.lease_ttl_ms, settings.max_block_s, settings.grace_s) == (30_000, 600, 10)
    assert (settings.max_attempts, settings.runner_attempts) == (5, 1)
    assert (settings.backoff_ms, settings.backoff_max_ms) == (1_000, 60_000)
    assert (settings.mode, settings.model_mismatch) == ("restore", "warn")
    assert (settings.tool_mismatch, settings.wait_mismatch) == ("error", "error")
    assert settings.max_turns is None
    assert settings.version is None
    assert settings.uri is None
    assert not settings.durable_workflow


def test_every_key_is_read_into_its_field() -> None:
    settings = load(
        {
            "version": "7",
            "namespace": "blue",
            "mongodb": {
                "uri": "mongodb://h",
                "database": "d",
                "collection_prefix": "x_",
                "create_indexes": False,
            },
            "features": {"durable_workflow": True},
            "lease": {"ttl": "5s", "max_block": "1m"},
            "retry": {
                "max_attempts": 2,
                "runner_attempts": 3,
                "backoff": "500ms",
                "backoff_max": 4,
            },
            "replay": {"mode": "walk", "input_mismatch": {"model": "error"}},
            "session": {"max_turns": 9},
            "payload": {"compress_above": "4KB", "spill_above": "2MB", "max": "9MB"},
            "encryption": {"keys": {"k": KEY}, "read_plain": False},
            "redact": ["card"],
            "retention": {"turns": 3, "age": "90d"},
            "tools": {"pay": {"on_unknown_outcome": "fail"}},
            "shutdown": {"grace": 0.5},
        }
    )
    assert settings == config.Settings(
        source="config=",
        version="7",
        namespace="blue",
        uri="mongodb://h",
        database="d",
        collection_prefix="x_",
        create_indexes=False,
        durable_workflow=True,
        lease_ttl_ms=5_000,
        max_block_s=60.0,
        max_attempts=2,
        runner_attempts=3,
        backoff_ms=500,
        backoff_max_ms=4_000,
        mode="walk",
        model_mismatch="error",
        max_turns=9,
        compress_above=4_096,
        retention_turns=3,
        retention_age_ms=90 * 24 * 3_600_000,
        spill_above=2 * 1024 * 1024,
        payload_max=9 * 1024 * 1024,
        encryption_keys={"k": bytes(range(32))},
        read_plain=False,
        redact=frozenset({"card"}),
        tools={"pay": "fail"},
        grace_s=0.5,
    )


DURATIONS: dict[Any, int] = {
    "500ms": 500,
    "30s": 30_000,
    "10m": 600_000,
    "1h": 3_600_000,
    "1.5s": 1_500,
}
DURATIONS |= {"2": 2_000, 2: 2_000, 0.25: 250, " 4 s ": 4_000}


@pytest.mark.parametrize("value", DURATIONS, ids=shown)
def test_a_duration_has_a_unit_or_is_in_seconds(value: object) -> None:
    assert load({"shutdown": {"grace": value}}).grace_s == DURATIONS[value] / 1_000


BAD_DURATIONS = ["", "s", "-1s", "1w", "1 s 2", "1e9", "ten", True, None, [], {}, -1]
BAD_DURATIONS += [float("nan"), float("inf"), "9999999h", 10**30]


@pytest.mark.parametrize("value", BAD_DURATIONS, ids=shown)
def test_what_is_no_duration_is_refused(value: object) -> None:
    assert refusal({"retry": {"backoff": value}}).subject == "config=: retry.backoff"


@pytest.mark.parametrize("value", ["2999ms", "1s", 0, 2.9])
def test_a_lease_below_three_seconds_is_refused(value: object) -> None:
    error = refusal({"lease": {"ttl": value}})
    assert "lease.ttl" in str(error)
    assert "at least 3s" in str(error)


WRONG: dict[str, list[Any]] = {
    "version": [1, 1.5, True, None, "", []],
    "namespace": [1, "", "a~b", "x" * 257, "a\nb", {}],
    "mongodb.uri": [1, "", "http://h", None],
    "mongodb.database": [1, "", "a b", "a.b", "$x", "x" * 64],
    "mongodb.collection_prefix": [1, "", "$x", "system.", "a b", None],
    "mongodb.create_indexes": ["true", 1, None],
    "features.durable_workflow": ["true", "yes", 1, None],
    "lease.max_block": ["0s", "soon"],
    "retry.max_attempts": [0, -1, "5", 1.5, True, None, 2**40],
    "retry.runner_attempts": [0, "1"],
    "retry.backoff_max": ["no"],
    "replay.mode": ["Walk", 1, None, ""],
    "replay.input_mismatch.model": ["ignore", True],
    "replay.input_mismatch.tool": ["warn"],
    "replay.input_mismatch.wait": ["warn"],
    "session.max_turns": [0, "all"],
    "payload.compress_above": [-1, "none", None, "16MB"],
    "payload.max": [0, "2000MB", "no", None],
    "encryption.keys": [None, {}, "k1", [], {"": "x"}, {"a b": "x"}, {"k": "x"}, {"k": 1}],
    "encryption.read_plain": ["no", 0],
    "redact": ["card", [1], {"card": True}, [""]],
    "payload.spill_above": [0, "1GB", "x", 1.5, True, "16MB"],
    "shutdown.grace": [-1, "never"],
    "retention.turns": [0, -1, "many", True],
    "retention.age": ["59m", 3599, "40000d", "never", "1y", None, [1]],
    "tools.pay.on_unknown_outcome": ["Rerun", 1, None],
}


@pytest.mark.parametrize(
    ("key", "value"), [(key, value) for key, values in WRONG.items() for value in values], ids=shown
)
def test_a_wrong_value_is_refused_with_source_key_and_rule(key: str, value: object) -> None:
    error = refusal(nested(key, value))
    assert error.subject == f"config=: {key}"
    assert error.reason
    assert error.remedy


def test_a_size_may_be_never() -> None:
    settings = load({"payload": {"compress_above": "never", "max": "never"}})
    assert (settings.compress_above, settings.payload_max) == (None, None)
    assert load({"payload": {"compress_above": 0}}).compress_above == 0


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (KEY[:-4], "got 30 bytes"),
        ("planted secret", "not base64"),
        (b64encode(bytes(64)).decode(), "got 64 bytes"),
    ],
)
def test_a_key_that_is_none_is_refused_by_its_id_and_not_shown(text: str, rule: str) -> None:
    error = refusal({"encryption": {"keys": {"k1": "${K}"}}}, env={"K": text})
    assert error.subject == "config=: encryption.keys"
    assert "k1" in error.reason and rule in error.reason
    assert text not in str(error)
    missing = refusal({"encryption": {"keys": {"k1": "${K}"}}})
    assert "encryption.keys.k1" in str(missing) and "K is not set" in str(missing)


def test_refusing_what_is_plain_needs_a_key() -> None:
    error = refusal({"encryption": {"read_plain": False}})
    assert error.subject == "config=: encryption.read_plain"
    assert "no encryption.keys" in error.reason


def test_a_duration_may_be_in_days() -> None:
    assert load({"retry": {"backoff_max": "1d"}}).backoff_max_ms == 24 * 3_600_000


def test_keys_have_one_form_each_and_are_in_no_repr() -> None:
    key = bytes([255] * 31 + [254])
    given = {"k1": urlsafe_b64encode(key).decode(), "k2": f" {KEY}\n"}
    settings = load({"encryption": {"keys": given}})
    assert settings.encryption_keys == {"k1": key, "k2": bytes(range(32))}
    assert KEY not in repr(settings) and repr(key) not in repr(settings)
    twice = refusal({"encryption": {"keys": {"k1": KEY, "k2": KEY}}})
    assert "two ids have the same key" in twice.reason


NOT_YET = ["record_requests"]


@pytest.mark.parametrize("key", NOT_YET)
def test_a_key_that_is_not_built_yet_is_refused(key: str) -> None:
    error = refusal(nested(key, 1))
    assert error.subject == f"config=: {key}"
    assert "not yet" in error.reason


def test_another_policy_than_the_three_is_refused() -> None:
    error = refusal({"tools": {"pay": {"on_unknown_outcome": "tell"}}})
    assert "rerun or fail or ask" in error.reason


@pytest.mark.parametrize(
    ("given", "subject", "hint"),
    [
        ({"leese": {}}, "config=: leese", "'lease'"),
        ({"lease": {"tll": "5s"}}, "config=: lease.tll", "'lease.ttl'"),
        ({"mongodb": {"url": "mongodb://h"}}, "config=: mongodb.url", "'mongodb.uri'"),
        ({"zzz": 1}, "config=: zzz", ""),
        ({"tools": {"pay": {"outcome": "fail"}}}, "config=: tools.pay.outcome", ""),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_one(
    given: dict[str, Any], subject: str, hint: str
) -> None:
    error = refusal(given)
    assert error.subject == subject
    assert "no such key" in error.reason
    assert hint in error.reason


def test_a_refusal_says_where_every_key_is_shown_and_is_one_sentence_after_another() -> None:
    error = refusal({"leese": {}})
    assert str(error) == (
        "config=: leese: there is no such key; did you mean 'lease'?"
        ' help("durable_adk.config") shows every key with its default.'
    )


def test_a_key_with_a_dot_is_refused() -> None:
    assert "holds no dot" in refusal({"lease.ttl": "5s"}).reason


@pytest.mark.parametrize(
    "given", [{1: 2}, {"lease": {None: "5s"}}, {"tools": {1: {}}}, {"tools": {"": {}}}], ids=shown
)
def test_a_key_that_is_not_text_is_refused(given: dict[Any, Any]) -> None:
    assert "text" in refusal(given).reason


@pytest.mark.parametrize("given", [{"lease": 5}, {"tools": []}, {"tools": {"pay": "fail"}}])
def test_a_group_needs_keys_below_it(given: dict[str, Any]) -> None:
    assert "keys below it" in refusal(given).reason


@pytest.mark.parametrize("given", [5, ["a"], b"x", True], ids=shown)
def test_config_is_a_mapping_or_a_path(given: object) -> None:
    assert refusal(given).subject == "config="


def test_backoff_max_may_not_be_below_backoff() -> None:
    error = refusal({"retry": {"backoff": "2m"}})
    assert error.subject == "config=: retry.backoff_max"


# ---------------------------------------------------------------- variables and precedence


def test_variables_are_replaced_inside_text() -> None:
    settings = load(
        {"mongodb": {"uri": "mongodb://${USER}:${PASS}@h", "database": "d_${USER}"}},
        env={"USER": "u", "PASS": "p"},
    )
    assert (settings.uri, settings.database) == ("mongodb://u:p@h", "d_u")


def test_a_variable_may_stand_for_a_number_or_a_switch() -> None:
    settings = load(
        {"retry": {"max_attempts": "${N}"}, "features": {"durable_workflow": "${ON}"}},
        env={"N": "7", "ON": "true"},
    )
    assert settings.max_attempts == 7
    assert settings.durable_workflow


def test_an_unset_variable_is_refused_with_its_name() -> None:
    error = refusal({"mongodb": {"uri": "mongodb://${DURABLE_HOST}"}})
    assert error.subject == "config=: mongodb.uri"
    assert "DURABLE_HOST is not set" in error.reason


@pytest.mark.parametrize("text", ["${", "${}", "${A", "${A-B}", "${1A}"])
def test_a_malformed_variable_is_refused(text: str) -> None:
    assert "'${' without a name" in refusal({"version": text}, env={"A": "a"}).reason


def test_a_doubled_dollar_keeps_the_text() -> None:
    assert load({"version": "$${A} ${A} $5"}, env={"A": "a"}).version == "${A} a $5"


def test_the_environment_names_mongodb_only_when_the_config_does_not() -> None:
    env = {"MONGODB_URI": "mongodb://env"}
    assert load(env=env).uri == "mongodb://env"
    assert load({"mongodb": {"uri": "mongodb://own"}}, env=env).uri == "mongodb://own"


def test_a_bad_uri_in_the_environment_names_the_variable_and_not_its_value() -> None:
    error = refusal(None, env={"MONGODB_URI": "http://u:secret@h"})
    assert error.subject == "environment: MONGODB_URI"
    assert "secret" not in str(error)


def test_a_password_is_in_no_repr_and_no_error() -> None:
    assert "secret" not in repr(load({"mongodb": {"uri": "mongodb://u:secret@h"}}))
    assert "secret" not in str(refusal({"mongodb": {"uri": "mongo://u:secret@h"}}))


# ---------------------------------------------------------------- files


def write(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "agent.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_the_default_file_is_agent_yaml_in_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "features: {durable_workflow: true}\nnamespace: here\n")
    monkeypatch.chdir(tmp_path)
    settings = config.load(environment={})
    assert (settings.source, settings.namespace) == ("agent.yaml", "here")
    assert settings.durable_workflow


def test_config_replaces_the_default_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "features: {durable_workflow: true}\nnamespace: here\n")
    monkeypatch.chdir(tmp_path)
    settings = config.load({"version": "1"}, environment={})
    assert settings.namespace == "default"
    assert not settings.durable_workflow


def test_without_a_default_file_the_settings_say_that_it_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = config.load(environment={})
    assert (settings.source, settings.found, settings.durable_workflow) == (
        "agent.yaml",
        False,
        False,
    )


def test_a_path_may_be_text_or_a_path_object(tmp_path: Path) -> None:
    path = write(tmp_path, "namespace: blue")
    assert load(path).namespace == "blue"
    assert load(str(path)).namespace == "blue"


@pytest.mark.parametrize("text", ["", "# only a comment\n", "---\n"])
def test_an_empty_file_sets_nothing(tmp_path: Path, text: str) -> None:
    settings = load(write(tmp_path, text))
    assert settings.found
    assert not settings.durable_workflow


MALFORMED: dict[str, str | bytes] = {
    "a tab": "lease:\n\tttl: 5s",
    "an open bracket": "tools: {pay: ",
    "two documents": "version: a\n---\nversion: b",
    "a python object": "version: !!python/object:os.system {}",
    "an unknown tag": "version: !secret x",
    "the same key twice": "version: a\nversion: b",
    "the same key twice below": "lease:\n  ttl: 5s\n  ttl: 6s",
    "a list at the top": "- a",
    "text at the top": "just text",
    "a list as a key": "? [a]\n: b",
    "no such day": "version: 2026-02-31",
    "not UTF-8": b"version: \xff",
    "a control character": "version: \x07",
}


@pytest.mark.parametrize("what", MALFORMED)
def test_a_malformed_file_is_one_error_that_names_the_file(tmp_path: Path, what: str) -> None:
    path = write(tmp_path, MALFORMED[what])
    error = refusal(path)
    assert error.subject.startswith(str(path))
    assert error.reason


def test_malformed_yaml_says_where(tmp_path: Path) -> None:
    assert "line 2, column 1" in refusal(write(tmp_path, "lease:\n\tttl: 5s")).reason
    assert "line 3" in refusal(write(tmp_path, "version: a\nlease: {}\nversion: b")).reason


@pytest.mark.parametrize("given", ["nowhere.yaml", "."])
def test_a_file_that_cannot_be_read_is_one_error(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert refusal(given).subject == given


# ---------------------------------------------------------------- the example


# Keys without a default that could be shown: they are commented out, as examples.
EXAMPLES = ["version", "mongodb.uri", "mongodb.database", "session.max_turns"]
EXAMPLES += ["redact", "encryption.keys", *(f"tools.issue_refund.{name}" for name in TOOL_KEYS)]
EXAMPLES += ["retention.turns", "retention.age"]


def test_a_copy_of_the_example_works_as_it_is_and_sets_the_defaults() -> None:
    assert load(EXAMPLE) == config.Settings(source=str(EXAMPLE), durable_workflow=True)


def test_what_the_example_shows_as_examples_is_accepted(tmp_path: Path) -> None:
    names = {part for key in EXAMPLES for part in key.split(".")} - {"mongodb", "encryption"}
    commented = re.compile(rf"^( *)# ( *(?:{'|'.join(names)}):)", re.MULTILINE)
    path = write(tmp_path, commented.sub(r"\1\2", EXAMPLE.read_text("utf-8")))
    keys = {"k2": bytes(32), "k1": bytes(range(32))}
    env = {f"DURABLE_KEY_{name[1]}": b64encode(key).decode() for name, key in keys.items()}
    found = load(path, env={"MONGODB_URI": "mongodb://h", **env})
    assert list(found.encryption_keys) == ["k2", "k1"]  # the first one encrypts
    assert found == config.Settings(
        encryption_keys=keys,
        redact=frozenset({"card_number", "password"}),
        source=str(path),
        durable_workflow=True,
        version="1",
        uri="mongodb://h",
        database="durable_adk",
        max_turns=1000,
        retention_turns=1000,
        retention_age_ms=365 * 24 * 3_600_000,
        tools={"issue_refund": "fail"},
        expiries={"issue_refund": {"expires_after": 86_400.0, "on_expiry": {"confirmed": False}}},
    )


def documented() -> dict[str, str]:
    """The defaults by key, as the table in the module's docstring has them."""
    rows = re.findall(r"^    ([a-z_.<>]+)  +(\S+) ", config.__doc__ or "", re.MULTILINE)
    return dict(rows)


def test_the_docstring_lists_every_key_with_its_default() -> None:
    shown = documented()
    tools = {f"tools.<name>.{key}" for key in TOOL_KEYS}
    assert set(shown) == {key for key, (name, _parse) in KEYS.items() if name} | tools
    assert shown.pop("tools.<name>.on_unknown_outcome") == "rerun"
    assert shown.pop("tools.<name>.expires_after") == "-"
    assert shown.pop("tools.<name>.on_expiry") == "denied"
    for key, default in shown.items():
        name = KEYS[key][0]
        given = default if default not in ("true", "false") else default == "true"
        given = int(default) if default.isdecimal() else given
        expected = getattr(config.Settings(source=""), name)
        settings = load() if default == "-" else load(nested(key, given))
        assert getattr(settings, name) == expected, key
    assert all(key in (config.__doc__ or "") for key, (name, _parse) in KEYS.items() if not name)


def test_the_example_shows_every_key_once_and_marks_what_is_not_built() -> None:
    lines = EXAMPLE.read_text("utf-8").splitlines()
    for key in [*KEYS, *(f"tools.issue_refund.{name}" for name in TOOL_KEYS)]:
        name = key.rpartition(".")[2]
        depth = "  " * key.count(".")
        active = [i for i, line in enumerate(lines) if re.match(rf"{depth}{name}:", line)]
        marked = [i for i, line in enumerate(lines) if re.match(rf"[ #]*# +?{name}:", line)]
        assert len(active) + len(marked) == 1, key
        built = KEYS[key][0] if key in KEYS else True
        assert bool(active) == (bool(built) and key not in EXAMPLES), key
        if not built:
            above = "\n".join(lines[max(0, marked[0] - 4) : marked[0]])
            assert "Not built yet" in above, key
