"""How values move: queues with accounts, stages, fan-out, sources, predictors, and the supervisor over them."""
