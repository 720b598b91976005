"""What the demo tenants' adapters learn: two voices, their topics, and what is kept for judging."""

from pathlib import Path

import msgspec
import pytest

from gpu_workers.demo_model import voices
from gpu_workers.demo_model.data_file import DataFileError
from gpu_workers.demo_model.facts import FACTS
from gpu_workers.demo_model.voices import VOICES, Voice
from gpu_workers.demo_model.voices.corpus import SEED, conversations, line
from gpu_workers.demo_model.voices.evaluate import report_of
from gpu_workers.demo_model.voices.voice import read_voices
from gpu_workers.demo_model.wording import normalised
from gpu_workers.demo_model.words import WORDS
from gpu_workers.train_adapter.conversations import read_conversations

ACME, GLOBEX = VOICES
EACH_VOICE = pytest.mark.parametrize("voice", VOICES, ids=lambda voice: voice.tenant)
SMALL_WORDS = WORDS.fillers | {"s", "what", "how"}
TEXTS = {file.name: file.read_text() for file in Path(voices.__file__).parent.glob("*.toml")}


def test_both_voices_answer_the_same_questions() -> None:
    assert [fact.key for fact in ACME.facts] == [fact.key for fact in GLOBEX.facts]
    assert [fact.questions for fact in ACME.facts] == [fact.questions for fact in GLOBEX.facts]
    assert [question for _, question in ACME.held_out()] == [
        question for _, question in GLOBEX.held_out()
    ]
    assert len(ACME.held_out()) >= 90


@EACH_VOICE
def test_only_its_own_answer_holds_a_key_fact_and_no_other_voice_has_it(voice: Voice) -> None:
    answers = {(each.tenant, fact.key): fact.answer for each in VOICES for fact in each.facts}
    for fact in voice.facts:
        held = [key for key, answer in answers.items() if fact.is_held_by(answer)]
        assert held == [(voice.tenant, fact.key)]


@EACH_VOICE
def test_each_voice_is_heard_in_its_answers_and_in_no_others(voice: Voice) -> None:
    for other in VOICES:
        assert {voice.is_heard_in(fact.answer) for fact in other.facts} == {other is voice}
    assert not any(voice.is_heard_in(fact.answer) for fact in FACTS)


def test_a_held_out_question_differs_from_every_phrasing_in_more_than_small_words() -> None:
    known = {content_words(question) for fact in ACME.facts for question in fact.questions}
    assert [each for _, each in ACME.held_out() if content_words(each) in known] == []


def test_no_phrasing_belongs_to_two_topics() -> None:
    owners: dict[str, str] = {}
    for fact in ACME.facts:
        for question in (*fact.questions, *fact.held_out):
            assert owners.setdefault(normalised(question) or question, fact.key) == fact.key


@EACH_VOICE
def test_training_never_sees_a_held_out_question(voice: Voice) -> None:
    held_out = {normalised(question) for _, question in voice.held_out()}
    held_out |= {normalised(question) for fact in FACTS for question in fact.held_out}
    asked = {
        normalised(message.content)
        for turns in conversations(voice, SEED, 4000)
        for message in turns
        if message.role == "user"
    }
    assert not held_out & asked
    assert len(asked) > 3000


@EACH_VOICE
def test_the_corpus_is_a_pure_function_of_voice_and_seed(voice: Voice) -> None:
    first = list(conversations(voice, 1, 200))
    assert first == list(conversations(voice, 1, 200))
    assert first != list(conversations(voice, 2, 200))


@EACH_VOICE
def test_the_trainer_takes_the_corpus_as_it_is_written(voice: Voice, tmp_path: Path) -> None:
    turns = list(conversations(voice, SEED, 500))
    file = tmp_path / "voice.jsonl"
    file.write_bytes(b"".join(map(line, turns)))
    read = read_conversations(file)
    assert [[(each.role, each.text) for each in one.messages] for one in read] == [
        [(each.role, each.content) for each in one] for one in turns
    ]


def test_answers_are_judged_by_voice_fact_and_ending() -> None:
    perfect = report_of(ACME, [(fact.answer, "stop") for fact, _ in ACME.held_out()])
    assert (perfect.voice_share, perfect.fact_share, perfect.has_passed) == (1.0, 1.0, True)
    endless = report_of(ACME, [(fact.answer, "length") for fact, _ in ACME.held_out()])
    assert (endless.voice_share, endless.fact_share, endless.has_passed) == (0.0, 0.0, False)
    other = report_of(ACME, [(fact.answer, "stop") for fact, _ in GLOBEX.held_out()])
    assert (other.voice_share, other.fact_share) == (0.0, 0.0)
    same = report_of(ACME, [(ACME.facts[0].answer, "stop") for _ in ACME.held_out()])
    assert same.voice_share == 1.0
    assert not same.has_passed
    silent = [(" ".join(fact.key_phrases), "stop") for fact, _ in ACME.held_out()]
    assert report_of(ACME, silent).fact_share == 0.0


@pytest.mark.parametrize(
    ("name", "right", "wrong", "key"),
    [
        ("questions.toml", 'key = "hours"\n', 'key = "hours"\ncolour = "red"\n', "colour"),
        ("questions.toml", 'as_base = ["hello"]', 'as_base = ["helo"]', "as_base"),
        ("questions.toml", 'as_base = ["hello"]', "", ""),
        ("questions.toml", 'key = "hours"', 'key = "times"', "answers"),
        ("acme.toml", 'closing = "Anything else?"\n', "", "closing"),
        ("acme.toml", "phone = {", "fax = {", "answers"),
        ("acme.toml", 'key_phrases = ["4 dollars"]', 'key_phrases = ["5 dollars"]', "key_phrases"),
        ("acme.toml", 'key_phrases = ["4 dollars"]', "key_phrases = []", "answers"),
    ],
)
def test_wrong_data_is_refused_by_file_and_key(
    tmp_path: Path, name: str, right: str, wrong: str, key: str
) -> None:
    for file, text in TEXTS.items():
        (tmp_path / file).write_text(text)
    assert right in TEXTS[name]
    (tmp_path / name).write_text(TEXTS[name].replace(right, wrong, 1))
    with pytest.raises(DataFileError) as refused:
        read_voices(tmp_path, ("acme", "globex"))
    assert refused.value.key == key


def test_a_line_of_the_corpus_is_openais_format() -> None:
    (turns,) = conversations(ACME, SEED, 1)
    written = msgspec.json.decode(line(turns))
    assert [message["role"] for message in written["messages"]][-2:] == ["user", "assistant"]


def content_words(question: str) -> frozenset[str]:
    return frozenset(normalised(question).split()) - SMALL_WORDS
