"""Which Secrets of the user's a pair names, and where: none of their values is ever here."""

from collections.abc import Iterator

from disaggpair_operator.api.v1alpha1 import EnvVar, KeyRef, Spec
from disaggpair_operator.model import SecretUse


def secret_uses(spec: Spec) -> tuple[SecretUse, ...]:
    """Every Secret that the spec names, in the order of the spec."""
    return tuple(_uses(spec))


def _uses(spec: Spec) -> Iterator[SecretUse]:
    engine, router = spec.engine, spec.router
    yield from _key("spec.model.tokenSecretRef", spec.model.token_secret_ref)
    yield from _key("spec.engine.apiKeySecretRef", engine.api_key_secret_ref)
    for path, env in (
        ("spec.engine.env", engine.env),
        ("spec.prefill.env", spec.prefill.env),
        ("spec.decode.env", spec.decode.env),
    ):
        yield from _variables(path, env)
    if router.auth and router.auth.api_keys_secret_ref:
        yield SecretUse("spec.router.auth.apiKeysSecretRef", router.auth.api_keys_secret_ref.name)
    if router.tracing:
        yield from _key("spec.router.tracing.headersSecretRef", router.tracing.headers_secret_ref)


def _variables(path: str, env: list[EnvVar]) -> Iterator[SecretUse]:
    for number, entry in enumerate(env):
        yield from _key(f"{path}[{number}].secretKeyRef", entry.secret_key_ref)


def _key(field: str, ref: KeyRef | None) -> Iterator[SecretUse]:
    if ref is not None:
        yield SecretUse(field, ref.name, ref.key)
