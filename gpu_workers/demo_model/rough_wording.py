"""Stronger variation for the second part of training: other words, endings, orders and frames.

The first part teaches which question belongs to which fact; this part keeps the model from
relying on the exact phrasings that it has seen.
"""

import random
import re
from typing import Final

from gpu_workers.demo_model.facts.fact import phrasings
from gpu_workers.demo_model.words import FILLERS

SMALL_WORDS: Final = FILLERS | frozenset(phrasings("what|how|be|will|would|with|on"))
FRAMES: Final = phrasings("""
    what happens with | tell me whether | I need to know about | what do you do about | how about |
    any info on | what can you say on | is there something on | what would you tell me about | let's
    talk about | how do you deal with | I'm curious about | my question is about | what's with |
    give me the facts on | is it true about | can you explain | how should I understand | we wonder
    about | what is the idea of | what is the purpose of | what is meant by | for what do you need |
    how come | what do you call | who takes care of | which one is | what kind of thing is | I read
    about | somebody mentioned | I saw | when would I need | why is there | I heard of | how would I
    handle
""")
EVERYDAY_WORDS: Final = phrasings("""
    just | only | really | also | still | ever | even | now | then | so | very | quite | some | any
    | all | every | each | other | another | one | two | more | most | much | many | few | there |
    here | its | they | them | he | she | we | us | our | their | be | been | was | were | have |
    has | had | get | gets | got | go | going | come | take | make | let | put | give | say | see |
    want | need | know | think | look | like | way | thing | things | something | anything |
    everything | someone | anybody | people | time | day | part | case | kind | sort | maybe |
    perhaps | actually | basically | simply | usually | normally | often | always | again | already
    | soon | later | before | after | while | because | since | if | when | where | though | but |
    or | and | from | by | at | on | off | over | under | up | out | through | between | during |
    about | than | as | too | well | good | same | different | own | able | might | may | would |
    should | must | will | system | service | certain | exactly | happen | suddenly
""")
REMARKS: Final = phrasings("""
    I have a question. | We run eight GPUs. | I just started with this. | My team is looking at it.
    | I could not find this anywhere. | Maybe you can help. | This is for a talk. | I work at
    Globex. | Our customers keep asking. | I am preparing a demo. | It is my first day here. | Sorry
    for asking. | There is something I do not understand. | I read the README. | We have three
    teams. | It is urgent. | My colleague did not know either. | Let us talk about something else. |
    Good, next question. | I use it every day. | We are evaluating several products. | One thing is
    not clear to me yet. | Imagine the following. | Here is what I want to know. | I forgot.
""")
LEADING: Final = re.compile(
    r"^(what (is|are|does|do|happens (when|if|to|with))|how (do|does|is|are|can) ?(I|you)?"
    r"|why (do|is|are)|tell me about|explain|describe|can I|is there|do you (have|support)?"
    r"|which|where (is|are|do I)?) ",
    re.IGNORECASE,
)
WORD_CHOICES: Final[dict[str, tuple[str, ...]]] = {
    "dies": ("died", "is dead", "has died", "is gone", "disappears", "stops working"),
    "crashes": ("crashed", "has crashed", "is broken", "collapses"),
    "fails": ("failed", "has failed", "is failing", "goes wrong"),
    "crash": ("failure", "breakdown", "outage"),
    "down": ("offline", "unavailable", "unreachable", "not running", "broken"),
    "lost": ("gone", "missing", "erased", "destroyed"),
    "stored": ("written down", "recorded", "remembered", "put"),
    "keys": ("API keys", "credentials", "secrets"),
    "key": ("API key", "secret", "credential"),
    "leaked": ("exposed", "stolen", "compromised", "public"),
    "tenant": ("customer", "client", "organisation", "account"),
    "tenants": ("customers", "clients", "organisations", "accounts"),
    "customers": ("tenants", "clients", "users"),
    "request": ("call", "prompt", "inference", "completion"),
    "requests": ("calls", "prompts", "inferences", "jobs"),
    "worker": ("GPU worker", "node", "GPU node", "worker process"),
    "workers": ("GPU workers", "nodes", "GPU nodes"),
    "gateway": ("API server", "front end", "gateway process"),
    "database": ("PostgreSQL", "Postgres", "db"),
    "PostgreSQL": ("Postgres", "the database", "pg"),
    "limit": ("restriction", "threshold", "ceiling"),
    "limits": ("restrictions", "thresholds", "caps"),
    "spending": ("expenses", "costs", "outlay"),
    "bill": ("invoice", "charge", "statement"),
    "billed": ("charged", "invoiced", "debited"),
    "pay": ("spend", "have to pay", "be charged"),
    "price": ("cost", "rate", "fee", "tariff"),
    "fair": ("just", "equal", "balanced"),
    "queue": ("line", "waiting list", "backlog"),
    "wait": ("stay", "remain", "queue up"),
    "cancel": ("abort", "stop", "terminate", "call off"),
    "stream": ("answer", "reply", "response stream", "output"),
    "streaming": ("live output", "streamed output", "sending tokens"),
    "tokens": ("words", "pieces", "token counts"),
    "first": ("initial", "very first", "earliest"),
    "model": ("LLM", "language model", "network"),
    "models": ("LLMs", "language models"),
    "load": ("install", "add", "upload", "bring in"),
    "upload": ("submit", "send in", "provide", "add"),
    "run": ("execute", "start", "launch", "perform"),
    "start": ("set up", "fire up", "get going", "run"),
    "stop": ("turn off", "finish", "switch off", "take down"),
    "install": ("set up", "deploy", "get"),
    "test": ("check", "try out", "verify"),
    "tests": ("checks", "test cases", "testing"),
    "measure": ("determine", "record", "count"),
    "fast": ("quick", "speedy", "rapid"),
    "slow": ("sluggish", "lagging", "delayed"),
    "safe": ("secure", "protected", "harmless"),
    "protect": ("guard", "secure", "defend", "shield"),
    "share": ("use together", "split", "divide"),
    "see": ("observe", "look up", "check", "read"),
    "find": ("locate", "discover", "look up"),
    "know": ("learn", "find out", "understand"),
    "need": ("want", "require", "must have"),
    "allowed": ("permitted", "legal", "possible"),
    "difference": ("distinction", "contrast"),
    "explain": ("make clear", "go over", "walk me through"),
    "write": ("draft", "author", "make me"),
    "tell": ("inform", "show"),
    "good": ("nice", "great", "decent"),
    "big": ("large", "huge", "great"),
    "small": ("tiny", "little", "mini"),
    "made": ("created", "built", "produced"),
    "make": ("create", "build", "produce"),
    "used": ("employed", "utilised", "applied", "needed"),
    "use": ("work with", "apply", "take"),
    "work": ("operate", "run", "act"),
    "keep": ("retain", "hold", "preserve"),
    "change": ("modify", "alter", "adjust", "edit"),
    "create": ("make", "set up", "generate", "add"),
    "delete": ("remove", "erase", "drop"),
    "happens": ("occurs", "takes place", "goes on", "is going to happen"),
    "support": ("offer", "provide", "allow", "handle"),
    "called": ("named", "termed"),
    "possible": ("feasible", "doable", "available"),
    "buy": ("purchase", "get", "order"),
    "who": ("which person", "what people"),
    "long": ("lengthy", "extended", "big"),
    "answer": ("respond", "text", "message", "completion"),
    "answers": ("replies", "responses", "output"),
    "wrong": ("incorrect", "bad", "false"),
    "new": ("fresh", "another", "additional"),
    "again": ("once more", "a second time", "anew"),
    "twice": ("two times", "double", "more than once"),
    "full": ("exhausted", "used up", "at capacity"),
    "next": ("following", "coming"),
    "chosen": ("determined", "elected", "taken"),
    "machines": ("servers", "hosts", "computers", "boxes"),
    "machine": ("box", "instance", "computer"),
    "memory": ("RAM", "space", "storage"),
    "engine": ("inference engine", "vLLM engine", "model server"),
    "restart": ("reboot", "start over", "relaunch"),
    "update": ("upgrade", "new version", "release"),
    "page": ("site", "screen", "view"),
    "people": ("persons", "staff", "users", "humans"),
    "company": ("firm", "business", "enterprise", "organisation"),
    "project": ("software", "product", "system"),
    "code": ("source", "program", "sources"),
    "docs": ("documents", "guides", "manual pages"),
    "error": ("failure", "problem", "status"),
}


def roughened(question: str, rng: random.Random) -> str:
    """The question said otherwise, often less well, with its key words mostly still there."""
    if rng.random() < 0.6:
        question = _with_other_words(question, rng)
    if rng.random() < 0.2:
        question = LEADING.sub(lambda _: f"{rng.choice(FRAMES)} ", question, count=1)
    if rng.random() < 0.3:
        question = _with_other_endings(question, rng)
    words = question.split(" ")
    if len(words) > 3 and rng.random() < 0.2:
        words = [word for word in words if word.lower() not in SMALL_WORDS] or words
    if len(words) > 4 and rng.random() < 0.2:
        del words[rng.randrange(len(words))]
    if len(words) > 3 and rng.random() < 0.1:
        rng.shuffle(words)
    if rng.random() < 0.4:
        words = _with_everyday_words(words, rng)
    question = " ".join(words)
    return f"{rng.choice(REMARKS)} {question}" if rng.random() < 0.08 else question


def _with_everyday_words(words: list[str], rng: random.Random) -> list[str]:
    """One or two words more that mean nothing here, and now and then one in place of another."""
    words = list(words)
    for _ in range(rng.randint(1, 2)):
        words.insert(rng.randint(0, len(words)), rng.choice(EVERYDAY_WORDS))
    small = [place for place, word in enumerate(words) if word.lower() in SMALL_WORDS]
    if small and rng.random() < 0.4:
        words[rng.choice(small)] = rng.choice(EVERYDAY_WORDS)
    return words


def _with_other_words(question: str, rng: random.Random) -> str:
    return " ".join(
        rng.choice(WORD_CHOICES[word]) if word in WORD_CHOICES and rng.random() < 0.6 else word
        for word in question.split(" ")
    )


def _with_other_endings(question: str, rng: random.Random) -> str:
    """One word in another form, right or wrong: asked, asks, asking."""
    words = question.split(" ")
    places = [place for place, word in enumerate(words) if len(word) > 3 and word.isalpha()]
    if places:
        place = rng.choice(places)
        stem = re.sub(r"(ing|ed|es|s|e)$", "", words[place])
        words[place] = stem + rng.choice(("", "s", "es", "ed", "ing", "e", "ion", "er"))
    return " ".join(words)
