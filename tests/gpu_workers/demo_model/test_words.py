"""What the reader of the corpus's word lists refuses."""

import tomllib
from pathlib import Path

import pytest

from gpu_workers.demo_model import words
from gpu_workers.demo_model.data_file import DataFileError, read
from gpu_workers.demo_model.words import Words

TEXT = Path(words.__file__).with_suffix(".toml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("right", "wrong", "key"),
    [
        ("openings = [", "openers = [", "openers"),
        ("\nframes = [", "\nfarmes = [", "farmes"),
        ("[synonyms]", "[homonyms]", "homonyms"),
        ("closings = [", "closings = []\nasides = [", "closings"),
        ('"owl",', '"owl ",', "slots"),
        ('why = ["for what reason",', 'why = [1, "for what reason",', "synonyms"),
        ('why = ["for what reason",', 'why = [["for what reason"],', "synonyms"),
        ('cost = ["price", "charge"]', 'cost = "price"', "synonyms"),
        ('cost = ["price", "charge"]', "cost = []", "synonyms"),
    ],
)
def test_wrong_words_are_refused_by_file_and_list(
    tmp_path: Path, right: str, wrong: str, key: str
) -> None:
    file = write(tmp_path, right, wrong)
    with pytest.raises(DataFileError) as refused:
        read(file, Words, remedy="Correct it.")
    assert (refused.value.file, refused.value.key) == (file, key)


def test_a_word_that_is_there_twice_is_not_toml(tmp_path: Path) -> None:
    file = write(tmp_path, 'cost = ["price", "charge"]', 'pay = ["price"]')
    with pytest.raises(DataFileError) as refused:
        read(file, Words, remedy="Correct it.")
    assert (refused.value.file, refused.value.key) == (file, "")
    assert isinstance(refused.value.__cause__, tomllib.TOMLDecodeError)


def write(folder: Path, right: str, wrong: str) -> Path:
    assert right in TEXT
    file = folder / "words.toml"
    file.write_text(TEXT.replace(right, wrong, 1), encoding="utf-8")
    return file
