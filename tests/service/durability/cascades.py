"""The cascades of the clients, described twice: for the service, and for Stopwise itself."""

from typing import Any

import stopwise as sw

TRIAGE: dict[str, Any] = {
    "name": "triage",
    "arms": [{"name": n, "cost": c} for n, c in (("rule", 0.02), ("model", 0.3), ("nurse", 0.4))],
    "context": ["age", "risk"],
    "features": {"kind": "polynomial", "degree": 2},
    "policy": {"kind": "uss-pd", "forced_rounds": 20, "full_depth_every": 10, "seed": 3},
}
CHANCE: dict[str, Any] = {
    "name": "chance",
    "arms": [{"name": "cheap", "cost": 0.1}, {"name": "expensive", "cost": 0.4}],
    "context": 2,
    "policy": {"kind": "thompson", "forced_rounds": 10, "seed": 4},
    "keep_open": 60,  # so that some expire
}
STAGES: dict[str, Any] = {
    "name": "stages",
    "arms": [{"name": n, "cost": c} for n, c in (("look", 0.05), ("ask", 0.1), ("test", 0.3))],
    "context": 3,
    "features": {
        "kind": "per_stage",
        "maps": [{"kind": "polynomial", "degree": 1}, {"kind": "polynomial", "degree": 2}],
        "sees": [2, 3],  # one number from the start, and one from each of the first two arms
    },
    "policy": {"kind": "uss-pd", "forced_rounds": 20},
}
SPECS = [TRIAGE, CHANCE, STAGES]
ARMS = {spec["name"]: [arm["name"] for arm in spec["arms"]] for spec in SPECS}


def policies() -> dict[str, sw.Policy]:
    """Make the policies of these cascades, without the service."""

    def cascade(spec: dict[str, Any]) -> sw.Cascade:
        return sw.Cascade([arm["cost"] for arm in spec["arms"]], ARMS[spec["name"]])

    staged = sw.PerStage([sw.Polynomial(1), sw.Polynomial(2)], sees=[2, 3])
    return {
        "triage": sw.make(
            "uss-pd",
            cascade(TRIAGE),
            features=sw.Polynomial(2),
            context_dim=2,
            forced_rounds=20,
            full_depth_every=10,
            seed=3,
        ),
        "chance": sw.make(
            "thompson",
            cascade(CHANCE),
            features=sw.Polynomial(1),
            context_dim=2,
            forced_rounds=10,
            seed=4,
        ),
        "stages": sw.make(
            "uss-pd", cascade(STAGES), features=staged, context_dim=3, forced_rounds=20
        ),
    }
