"""How the demo model's facts are read, and what their reader refuses."""

from pathlib import Path

import pytest

from gpu_workers.demo_model.data_file import DataFileError
from gpu_workers.demo_model.facts import FACTS
from gpu_workers.demo_model.facts.reader import read_facts

KEY = 'key = "tea"'
ANSWER = 'answer = "Tea is free for every tenant."'
KEY_PHRASES = 'key_phrases = ["tea is free"]'
HELD_OUT = "held_out = ['one', 'two', 'three', 'four']"
QUESTIONS = f"questions = {[f'how is tea number {number}' for number in range(9)]}"
TEA = "\n".join(("[[fact]]", KEY, ANSWER, KEY_PHRASES, HELD_OUT, QUESTIONS)) + "\n"
COFFEE = TEA.replace("tea", "coffee").replace("Tea", "Coffee")


def test_facts_stand_in_the_order_of_themes_and_files(tmp_path: Path) -> None:
    write(tmp_path, "drinks", COFFEE + TEA)
    write(tmp_path, "breakfast", TEA.replace('"tea"', '"early_tea"'))
    keys = [fact.key for fact in read_facts(tmp_path, ("drinks", "breakfast"))]
    assert keys == ["coffee", "tea", "early_tea"]


def test_a_fact_is_read_as_it_is_written(tmp_path: Path) -> None:
    write(tmp_path, "drinks", TEA + "topics = ['tea', 'a cup of tea']\n")
    (fact,) = read_facts(tmp_path, ["drinks"])
    assert fact.answer == "Tea is free for every tenant."
    assert fact.key_phrases == ("tea is free",)
    assert fact.held_out == ("one", "two", "three", "four")
    assert fact.questions[8] == "how is tea number 8"
    assert fact.topics == ("tea", "a cup of tea")


def test_the_lines_of_an_answer_are_joined_by_spaces(tmp_path: Path) -> None:
    wrapped = 'answer = """\nTea is free\nfor every tenant.\n"""'
    write(tmp_path, "drinks", TEA.replace(ANSWER, wrapped))
    (fact,) = read_facts(tmp_path, ["drinks"])
    assert fact.answer == "Tea is free for every tenant."


def test_a_fact_is_frozen() -> None:
    with pytest.raises(AttributeError):
        FACTS[0].answer = "another"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("right", "wrong", "key"),
    [
        (HELD_OUT, HELD_OUT + "\nsynonyms = ['chai']", "synonyms"),
        (ANSWER + "\n", "", "answer"),
        (KEY_PHRASES + "\n", "", "key_phrases"),
        (HELD_OUT + "\n", "", "held_out"),
        (QUESTIONS + "\n", "", "questions"),
        (ANSWER, "answer = ''", "answer"),
        (ANSWER, "answer = 7", "answer"),
        (KEY_PHRASES, "key_phrases = []", "key_phrases"),
        (KEY_PHRASES, "key_phrases = 'tea is free'", "key_phrases"),
        (KEY_PHRASES, "key_phrases = ['coffee is free']", "key_phrases"),
        (HELD_OUT, "held_out = ['one', 'two', 'three']", "held_out"),
        (QUESTIONS, f"questions = {['how is tea'] * 8}", "questions"),
        ("'four'", "4", "held_out"),
        ("'four'", "''", "held_out"),
        ("'four'", "'four '", "held_out"),
        ("'four'", '"four\\n"', "held_out"),
        (HELD_OUT, HELD_OUT + "\ntopics = [' tea']", "topics"),
    ],
)
def test_a_wrong_fact_is_refused_by_file_fact_and_key(
    tmp_path: Path, right: str, wrong: str, key: str
) -> None:
    file = write(tmp_path, "drinks", COFFEE + TEA.replace(right, wrong))
    with pytest.raises(DataFileError) as refused:
        read_facts(tmp_path, ["drinks"])
    assert (refused.value.file, refused.value.place) == (file, "fact 'tea'")
    assert refused.value.key == key


def test_a_key_phrase_that_the_answer_lacks_is_told(tmp_path: Path) -> None:
    write(tmp_path, "drinks", TEA.replace(KEY_PHRASES, "key_phrases = ['coffee is free']"))
    with pytest.raises(DataFileError, match="'coffee is free'"):
        read_facts(tmp_path, ["drinks"])


@pytest.mark.parametrize("line", ["", "key = ''"])
def test_a_fact_without_a_key_is_named_by_its_number(tmp_path: Path, line: str) -> None:
    file = write(tmp_path, "drinks", COFFEE + TEA.replace(KEY, line))
    with pytest.raises(DataFileError) as refused:
        read_facts(tmp_path, ["drinks"])
    assert (refused.value.file, refused.value.place) == (file, "fact number 2")
    assert refused.value.key == "key"


@pytest.mark.parametrize("themes", [["drinks"], ["drinks", "breakfast"]])
def test_a_key_belongs_to_one_fact_of_all_themes(tmp_path: Path, themes: list[str]) -> None:
    for theme in themes:
        file = write(tmp_path, theme, TEA if len(themes) > 1 else TEA + TEA)
    with pytest.raises(DataFileError, match=rf"{file.name}: fact 'tea': drinks\.toml ") as refused:
        read_facts(tmp_path, themes)
    assert (refused.value.file, refused.value.place) == (file, "fact 'tea'")
    assert refused.value.key == "key"


@pytest.mark.parametrize(
    "text",
    [
        TEA.replace("[[fact]]", "[[facts]]"),
        TEA.replace("[[fact]]", "[fact]"),
        "about = 'drinks'\n" + TEA,
        TEA.replace(HELD_OUT, "held_out = ['one' 'two']"),
        "fact = ['tea']",
        "",
    ],
)
def test_a_file_that_is_not_a_list_of_facts_is_refused(tmp_path: Path, text: str) -> None:
    file = write(tmp_path, "drinks", text)
    with pytest.raises(DataFileError) as refused:
        read_facts(tmp_path, ["drinks"])
    assert (refused.value.file, refused.value.place) == (file, "")


def test_a_file_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path, "drinks", TEA)
    file.write_bytes(TEA.replace("free", "gr\u00e1tis").encode("latin-1"))
    with pytest.raises(DataFileError) as refused:
        read_facts(tmp_path, ["drinks"])
    assert refused.value.file == file


@pytest.mark.parametrize("themes", [[], ["drinks", "breakfast"]])
def test_every_theme_is_a_file_and_every_file_a_theme(tmp_path: Path, themes: list[str]) -> None:
    write(tmp_path, "drinks", TEA)
    with pytest.raises(DataFileError) as refused:
        read_facts(tmp_path, themes)
    assert refused.value.file == tmp_path / ("breakfast.toml" if themes else "drinks.toml")


def write(folder: Path, theme: str, text: str) -> Path:
    file = folder / f"{theme}.toml"
    file.write_text(text, encoding="utf-8")
    return file
