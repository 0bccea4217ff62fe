"""The APIs by name. Pure."""

from collections.abc import Mapping
from typing import Final

from disaggpair_router.apis.completions import Chat, Completions
from disaggpair_router.apis.messages import Messages
from disaggpair_router.apis.responses import Responses
from disaggpair_router.apis.shape import Shape
from disaggpair_router.kv import Api

SHAPES: Final[Mapping[Api, Shape]] = {
    "chat": Chat(),
    "completions": Completions(),
    "responses": Responses(),
    "messages": Messages(),
}
