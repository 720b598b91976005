"""What a caller can name as its request's model: served models, and its tenant's adapters of them.
What is another's, what is not there and what its key may not use are the same 404."""

from dataclasses import dataclass

from gpu_workers.protocol.policy import AdapterPolicy, Caller, ModelPolicy, is_visible_to
from inference.admission.adapters import AdapterName, ChosenAdapter, Turns, choose, may_use
from inference.admission.policy_snapshot import PolicySnapshot
from inference.errors import ModelNotFound


@dataclass(frozen=True, kw_only=True, slots=True)
class CallableModel:
    """A served model, as it is or with an adapter; `name` is what the caller calls it."""

    name: str
    model: ModelPolicy
    adapter: ChosenAdapter | None = None

    @property
    def adapter_name(self) -> str:
        return "" if self.adapter is None else self.adapter.policy.name


@dataclass(frozen=True, kw_only=True)
class KnownModel:
    """What the caller's tenant calls a model, without a version, and the served model behind it, ""
    where that is no longer known to the caller."""

    name: str
    served: str


class CallableModels:
    """What the snapshot of one gateway process offers."""

    def __init__(self, snapshot: PolicySnapshot) -> None:
        self._snapshot = snapshot
        self._turns = Turns()

    async def models(self, caller: Caller) -> list[ModelPolicy]:
        models = await self._snapshot.models()
        return [model for model in models.values() if is_visible_to(model, caller)]

    async def all(self, caller: Caller) -> list[CallableModel]:
        """Return the served models and then the adapters that answer when they are named without a
        version, each in the order of names."""
        offers = [
            CallableModel(name=model.name, model=model) for model in await self.models(caller)
        ]
        if not caller.tenant.slug:
            return offers
        models = await self._snapshot.models()
        for policy in await self._snapshot.adapters_of(caller.tenant.slug):
            base = models.get(policy.model)
            # Any of two versions: a list promises none, and takes nobody's turn.
            chosen = choose(policy, None, caller.tenant_id, self._turns)
            if base is not None and chosen is not None and may_use(caller, policy, base):
                offers.append(CallableModel(name=policy.name, model=base, adapter=chosen))
        return offers

    async def named(self, name: str, caller: Caller, *, sticky: str = "") -> CallableModel:
        """Return what the caller means by a name. `sticky`: who always gets the same of two
        versions. Raises `ModelNotFound`."""
        model = (await self._snapshot.models()).get(name)
        if model is not None and is_visible_to(model, caller):
            return CallableModel(name=name, model=model)
        offer = None if model is not None else await self._adapter(name, caller, sticky)
        if offer is None:
            raise ModelNotFound(
                f"The model {name[:200]!r} does not exist, or you have no access to it; "
                "GET /v1/models lists yours.",
                param="model",
            )
        return offer

    def known_model(self, name: str, caller: Caller) -> KnownModel | None:
        """Return what the caller may know of by a name, as far as this process keeps it; None for
        what is none to it. For counting: a label is never what a client writes."""
        models = self._snapshot.models_in_memory
        adapter = None if name in models else self._own_adapter(name, caller)
        served = name if adapter is None else adapter.model
        model = models.get(served)
        is_visible = model is not None and is_visible_to(model, caller)
        if adapter is not None:
            return KnownModel(name=adapter.name, served=served if is_visible else "")
        return KnownModel(name=name, served=name) if is_visible else None

    def _own_adapter(self, name: str, caller: Caller) -> AdapterPolicy | None:
        """Return an adapter of the caller's tenant, if it is kept."""
        asked = AdapterName.parsed(name)
        if asked is None or asked.slug != caller.tenant.slug:
            return None
        return self._snapshot.adapter_in_memory(asked.name)

    async def _adapter(self, name: str, caller: Caller, sticky: str) -> CallableModel | None:
        asked = AdapterName.parsed(name)
        # Another's is not even looked for: whether it is there shows in no answer's time.
        if asked is None or asked.slug != caller.tenant.slug:
            return None
        if caller.key.adapters is not None and asked.name not in caller.key.adapters:
            return None
        policy = await self._snapshot.adapter(asked.name)
        if policy is None:
            return None
        base = (await self._snapshot.models()).get(policy.model)
        if base is None or not may_use(caller, policy, base):
            return None
        chosen = choose(policy, asked.version, sticky, self._turns)
        return None if chosen is None else CallableModel(name=name, model=base, adapter=chosen)
