from pathlib import Path

import pytest

from gpu_workers.config import ConfigError, WorkerConfig, read_env_file

REDIS = {"PENSTOCK_DISPATCH_REDIS_URL": "redis://127.0.0.1:6379"}


def test_the_redis_url_is_all_that_must_be_set() -> None:
    config = WorkerConfig.from_environ(REDIS)
    assert config.engine == "vllm"
    assert config.pool == config.model == "penstock-demo"
    assert config.name


def test_a_pool_is_named_after_its_model_unless_it_has_a_name() -> None:
    named = REDIS | {"PENSTOCK_WORKER_MODEL": "sim"}
    assert WorkerConfig.from_environ(named).pool == "sim"
    assert WorkerConfig.from_environ(named | {"PENSTOCK_WORKER_POOL": "a"}).pool == "a"


def test_the_simulated_engine_stands_in_for_no_model_unless_it_is_told_which() -> None:
    simulated = REDIS | {"PENSTOCK_WORKER_ENGINE": "sim"}
    with pytest.raises(ConfigError) as error:
        WorkerConfig.from_environ(simulated)
    assert list(error.value.problems) == ["PENSTOCK_WORKER_MODEL"]
    assert "--model" in str(error.value)
    assert WorkerConfig.from_environ(simulated | {"PENSTOCK_WORKER_MODEL": "sim"}).pool == "sim"


def test_all_wrong_settings_are_named_at_once() -> None:
    wrong = {
        "PENSTOCK_WORKER_ENGINE": "tgi",
        "PENSTOCK_WORKER_SLOTS": "many",
        "PENSTOCK_MAX_NUM_SEQS": "0",
        "PENSTOCK_GPU_MEMORY_UTILIZATION": "nan",
        "PENSTOCK_ENFORCE_EAGER": "perhaps",
        "PENSTOCK_SPECULATIVE_CONFIG": "[1]",
    }
    with pytest.raises(ConfigError) as error:
        WorkerConfig.from_environ(wrong)
    assert list(error.value.problems) == [
        "PENSTOCK_DISPATCH_REDIS_URL",
        *sorted(wrong, key=list(WorkerConfig.variables()).index),
    ]


def test_a_secret_may_come_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "redis-url"
    file.write_text("redis://:secret@127.0.0.1:6379\n")
    config = WorkerConfig.from_environ({"PENSTOCK_DISPATCH_REDIS_URL_FILE": str(file)})
    assert config.dispatch_redis_url == "redis://:secret@127.0.0.1:6379"


def test_a_secret_that_is_set_twice_or_whose_file_is_missing_is_refused(tmp_path: Path) -> None:
    missing, bad = tmp_path / "missing", tmp_path / "bad"
    file = {"PENSTOCK_DISPATCH_REDIS_URL_FILE": str(missing)}
    assert wrong_variables(file) == ["PENSTOCK_DISPATCH_REDIS_URL"]
    assert wrong_variables(REDIS | file) == ["PENSTOCK_DISPATCH_REDIS_URL"]
    for content in (b"\xff\xfe", b" \n"):
        bad.write_bytes(content)
        file = {"PENSTOCK_DISPATCH_REDIS_URL_FILE": str(bad)}
        assert wrong_variables(file) == ["PENSTOCK_DISPATCH_REDIS_URL"]


def wrong_variables(environ: dict[str, str]) -> list[str]:
    with pytest.raises(ConfigError) as error:
        WorkerConfig.from_environ(environ)
    return list(error.value.problems)


def test_an_empty_variable_counts_as_not_set() -> None:
    config = WorkerConfig.from_environ(REDIS | {"PENSTOCK_MAX_MODEL_LEN": ""})
    assert config.max_model_len is None


def test_values_are_typed() -> None:
    config = WorkerConfig.from_environ(
        REDIS
        | {
            "PENSTOCK_TENSOR_PARALLEL_SIZE": "2",
            "PENSTOCK_ENFORCE_EAGER": "false",
            "PENSTOCK_SPECULATIVE_CONFIG": '{"method": "ngram"}',
            "PENSTOCK_SIM_STEP_MS": "2.5",
        }
    )
    assert config.tensor_parallel_size == 2
    assert config.enforce_eager is False
    assert config.speculative_config == {"method": "ngram"}
    assert config.sim_step_ms == 2.5


def test_an_env_file_is_read_line_by_line(tmp_path: Path) -> None:
    file = tmp_path / "demo.env"
    file.write_text("# a comment\n\nPENSTOCK_MODEL=sim\nURL='redis://x?a=b'\n#NOT=this\n")
    assert read_env_file(file) == {"PENSTOCK_MODEL": "sim", "URL": "redis://x?a=b"}


def test_a_worker_has_no_adapters_unless_it_is_given_slots() -> None:
    config = WorkerConfig.from_environ(REDIS)
    assert config.adapter_slots == 0
    assert "lm_head" not in config.adapter_target_modules
    slots = REDIS | {"PENSTOCK_ADAPTER_SLOTS": "8"}
    assert WorkerConfig.from_environ(slots).adapters_in_memory is None
    chosen = slots | {"PENSTOCK_ADAPTER_TARGET_MODULES": "q_proj, lm_head"}
    assert WorkerConfig.from_environ(chosen).adapter_target_modules == ("q_proj", "lm_head")


def test_adapters_that_no_engine_could_have_are_refused() -> None:
    wrong = {"PENSTOCK_ADAPTER_MAX_RANK": "12", "PENSTOCK_ADAPTER_TARGET_MODULES": "q_proj,--x"}
    assert wrong_variables(REDIS | wrong) == list(wrong)
    few = {"PENSTOCK_ADAPTER_SLOTS": "8", "PENSTOCK_ADAPTERS_IN_MEMORY": "7"}
    assert wrong_variables(REDIS | few) == ["PENSTOCK_ADAPTERS_IN_MEMORY"]
