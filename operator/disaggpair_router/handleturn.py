"""The handles of this process as the legs of a turn see them; implements `held`."""

from collections.abc import Mapping

from disaggpair_router.answer import Answer
from disaggpair_router.handles import Handles
from disaggpair_router.kv import Handle, Json
from disaggpair_router.pick import Endpoint
from disaggpair_router.request import TurnRequest
from disaggpair_router.session import Claim, MissReason


class HandleClaim:
    """A handle taken out of the table."""

    def __init__(self, handles: Handles, claim: Claim) -> None:
        self._handles = handles
        self._claim = claim

    @property
    def handle(self) -> Handle:
        """See `held.Claim`."""
        return self._claim.handle

    def restore(self) -> None:
        """See `held.Claim`."""
        self._handles.restore(self._claim)

    def give_up(self) -> None:
        """See `held.Claim`."""
        self._handles.give_up(self._claim)

    def pause(self, prefill: Endpoint) -> None:
        """See `held.Claim`."""
        self._handles.pause(self._claim, prefill)


class HandleTurn:
    """One turn's use of the handles; see `held.TurnKV`."""

    def __init__(self, handles: Handles, request: TurnRequest) -> None:
        self._handles = handles
        self._request = request

    @property
    def holder(self) -> str:
        """See `held.TurnKV`."""
        return self._handles.holder(self._request)

    @property
    def rank(self) -> None:
        """See `held.TurnKV`: a handle does not tell it in a way that can be relied on."""
        return

    @property
    def history(self) -> None:
        """See `held.TurnKV`: a turn that D computes alone would leave no handle for the next."""
        return

    @property
    def wants_whole(self) -> bool:
        """See `held.TurnKV`."""
        return self._handles.wants_whole(self._request)

    @property
    def wants_answer(self) -> bool:
        """See `held.TurnKV`: the next turn has to repeat it."""
        return self._request.history is not None

    async def claim(self, prefill: Endpoint) -> HandleClaim | MissReason:
        """See `held.TurnKV`; without waiting, so that no other turn comes between."""
        found = self._handles.claim(self._request, prefill)
        return HandleClaim(self._handles, found) if isinstance(found, Claim) else found

    async def claim_direct(self) -> MissReason:
        """See `held.TurnKV`."""
        return "off"

    def decode_params(self, params: Json | None, decode: Endpoint) -> Json | None:
        """See `held.TurnKV`: P's as they came."""
        return params

    def keep(
        self,
        decode: Endpoint,
        params: object,
        answer: Answer | None,
        usage: Mapping[str, object] | None,
        *,
        is_clean: bool,
    ) -> None:
        """See `held.TurnKV`."""
        kept = params if is_clean else None
        self._handles.keep(self._request, decode, kept, answer, usage)

    def discard(self, decode: Endpoint, params: object) -> None:
        """See `held.TurnKV`."""
        self._handles.discard(self._request, decode, params)


class HandleKV(Handles):
    """The handles of one router process, for all its turns."""

    def turn(self, request: TurnRequest) -> HandleTurn:
        """See `held.HeldKV`."""
        return HandleTurn(self, request)
