"""schemathesis against an API: whatever its document allows, and what it forbids, all checks."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import hypothesis
import schemathesis
from hypothesis import HealthCheck, Phase
from hypothesis import strategies as st
from schemathesis.core.failures import FailureGroup
from schemathesis.generation.modes import GenerationMode

# Of what its schema allows, and a rule beyond the schema refuses: a model that there is not, two
# fields that exclude each other, an ETag that is not the record's.
RULES_BEYOND_THE_SCHEMA = ("400", "412")

Case = schemathesis.Case[Any]
Operation = schemathesis.APIOperation[Any, Any, Any, Any]
# Sends a case and validates the answer. Raises what schemathesis found.
Asker = Callable[[Case], None]


@dataclass(kw_only=True)
class Fuzzer:
    """Asks operations. `ids` stand in addresses where a real record has to."""

    ask: Asker
    ids: Mapping[str, str] = field(default_factory=dict)
    seed: int = 0
    asked: int = 0
    found: list[str] = field(default_factory=list)

    def ask_all(self, operations: Sequence[Operation], *, cases: int) -> None:
        """Ask all operations in turn until so many cases were asked: some have few of their own."""
        while self.asked < cases and not self.found:
            for operation in operations:
                try:
                    self._ask(operation, -(-cases // len(operations)))
                except FailureGroup as failure:
                    told = "\n\n".join(map(str, failure.exceptions))
                    self.found.append(f"{operation.label}\n{told}")
            self.seed += 1

    def _ask(self, operation: Operation, examples: int) -> None:
        names = {each.name for each in operation.path_parameters}
        real = {name: value for name, value in self.ids.items() if name in names}

        @hypothesis.seed(self.seed)
        @hypothesis.settings(
            max_examples=examples,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @hypothesis.given(case=_cases(operation, real))
        def each(case: Case) -> None:
            self.asked += 1
            self.ask(case)

        each()


def _cases(operation: Operation, ids: Mapping[str, str]) -> st.SearchStrategy[Case]:
    """Return cases in all modes, most of them about records that there are."""
    # Of four, three are about records that there are.
    about = [dict(ids)] * 3 + [{}] if ids else [{}]
    each: list[st.SearchStrategy[Case]] = [
        operation.as_strategy(generation_mode=mode, path_parameters=given)
        for mode in GenerationMode
        for given in about
    ]
    return st.one_of(each)


def is_positive(case: Case) -> bool:
    """Return whether the document allows all of the case."""
    return case.meta is not None and case.meta.generation.mode.is_positive


def schema_of(document: Mapping[str, Any], *, app: Any = None) -> Any:
    """Return the document as schemathesis has it; `app` is a WSGI application, asked in process."""
    schema = schemathesis.openapi.from_dict(dict(document))
    schema.app = app
    checks = schema.config.checks
    checks.positive_data_acceptance.expected_statuses.extend(RULES_BEYOND_THE_SCHEMA)
    # A made-up ETag is refused before the body is looked at.
    checks.negative_data_rejection.expected_statuses.append("412")
    return schema


def operations_of(schema: Any, prefix: str) -> list[Operation]:
    """Return the operations whose address begins so."""
    found = [result.ok() for result in schema.get_all_operations()]
    return [operation for operation in found if operation.path.startswith(prefix)]
