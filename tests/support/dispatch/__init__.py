"""The dispatch functions under a state machine: model, actions, invariants, planted bugs."""
