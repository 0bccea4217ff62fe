"""Digests of the tokens of requests that are not over, each token hashed once."""

import time
from typing import Any

from disaggpair_connector.digest import Digests, TokenDigests, common_prefix
from disaggpair_connector.identity import identity_of, is_comparable, media_of
from disaggpair_connector.tally import Tally


class Prompts:
    """One growing digest for each request.

    Args:
        tally: what is counted for /metrics; gets the seconds of each call.
    """

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._of: dict[str, TokenDigests] = {}

    def digests(self, request: Any, tokens: int) -> Digests | None:
        """Digests of the leading tokens of a request.

        None if it has fewer, or is not made of token ids alone: embeddings, or the ids below 0
        with which vLLM marks places whose token is not known yet.
        """
        if tokens > request.num_tokens or not is_comparable(request):
            return None
        started = time.perf_counter()
        digests = self._of.get(request.request_id)
        if digests is None or digests.tokens > tokens:
            digests = TokenDigests(identity_of(request), media_of(request))
            self._of[request.request_id] = digests
        try:
            digests.extend(request.all_token_ids[digests.tokens : tokens])
        except OverflowError:
            return None
        found = digests.at(tokens)
        self._tally.digest(time.perf_counter() - started)
        return found

    def held_by(self, request: Any, held: Digests) -> int:
        """How many leading tokens of a prompt are proven to be among those held elsewhere."""
        mine = self.digests(request, min(held.tokens, request.num_prompt_tokens))
        return 0 if mine is None else common_prefix(mine, held)

    def forget(self, request: Any) -> None:
        """Drop what is known of a request."""
        self._of.pop(request.request_id, None)
