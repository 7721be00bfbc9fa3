"""A user's steps with a generated client: every module loads, a claim is made, and a refusal is read as what it is."""

import importlib
import pkgutil
import sys

import fencepost_api
from fencepost_api import AuthenticatedClient
from fencepost_api.api.admin import lookup
from fencepost_api.api.fences import claim, list_scopes, seal
from fencepost_api.models import Claim, Duplicate, Lookup, LookupKey, New, Problem, Seal

modules = [module.name for module in pkgutil.walk_packages(fencepost_api.__path__, "fencepost_api.")]
for name in modules:
    importlib.import_module(name)
assert len(modules) > 100, modules

client = AuthenticatedClient(base_url=sys.argv[1], token="dev-partner")
target = {"scope": "INDEX_BUILD", "key": {"index_hash": "a1"}}
asked = lambda body: claim.sync(client=client, body=Claim.from_dict({**target, "body": body}))

granted = asked({"docs": 1})
assert isinstance(granted, New), granted
held = asked({"docs": 1})
assert isinstance(held, Problem) and held.code == "in-flight" and held.first_seen_at, held
conflict = asked({"docs": 2})
assert isinstance(conflict, Problem) and conflict.code == "conflict", conflict
assert [(step.op, step.path, step.value) for step in conflict.diff] == [("replace", "/docs", 2)], conflict
assert conflict.explain == f"/console/keys/{granted.idempotency_key}", conflict

receipt = Seal.from_dict({**target, "token": granted.token, "effect_id": "idx-1", "receipt": {"docs": 1}})
seal.sync(client=client, body=receipt)
assert isinstance(asked({"docs": 1}), Duplicate)
found = lookup.sync(client=client, scope="INDEX_BUILD", key=LookupKey.from_dict({"index_hash": "a1"}))
assert isinstance(found, Lookup) and found.state == "sealed", found
assert any(item.scope == "INDEX_BUILD" for item in list_scopes.sync(client=client).items)
