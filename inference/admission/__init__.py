"""Who may call, which models they see, and what they may still use: key check, policy snapshot,
limits and reservations, with the Lua library that counts them."""
