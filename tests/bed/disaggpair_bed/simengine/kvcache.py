"""KV of single requests: where it lies, whether it is filed, what it makes the model say."""

import hashlib

from disaggpair_bed.simengine import kv
from disaggpair_bed.simengine.job import Request
from disaggpair_bed.simengine.oracle import Oracle
from disaggpair_bed.simengine.pool import BlockPool, block_hashes


class KVCache:
    """Keeps a request's blocks, its hashes and the digest over its KV in step."""

    def __init__(
        self, pool: BlockPool, model: str, oracle: Oracle, *, prefix_caching: bool
    ) -> None:
        self.pool = pool
        self._model = self._weights = model
        self._oracle = oracle
        self._prefix_caching = prefix_caching
        self._digests: dict[str, tuple[int, hashlib.blake2b]] = {}

    def adopt_prefix(self, request: Request) -> None:
        """Start a request with what the prefix cache has, its last token always left out.

        A prompt of one token that was read from a peer has blocks already and keeps them.
        """
        if request.blocks:
            return
        hit: list[int] = []
        if self._prefix_caching and request.reads_prefix_cache:
            self._hash(request)
            usable = (len(request.tokens) - 1) // self.pool.block_size
            hit = self.pool.cached_prefix(request.hashes[:usable])
        self.pool.share(hit)
        request.blocks = hit
        request.filed = len(hit)
        request.computed = request.local_hit = len(hit) * self.pool.block_size

    def grow(self, request: Request, positions: int) -> bool:
        """Blocks for so many positions; False, and nothing taken, when there are too few."""
        missing = self.missing(request, positions)
        if missing <= 0:
            return True
        blocks = self.pool.allocate(missing)
        if blocks is None:
            return False
        request.blocks.extend(blocks)
        return True

    def missing(self, request: Request, positions: int) -> int:
        """Blocks that a request lacks for so many positions."""
        return -(-positions // self.pool.block_size) - len(request.blocks)

    def load(self, request: Request, data: bytes) -> None:
        """Put what was read from a peer behind the local prefix and file it."""
        size = self.pool.block_size * kv.BYTES_PER_POSITION
        first = request.local_hit // self.pool.block_size
        for index, block in enumerate(request.blocks[first:]):
            self.pool.read(block)[:] = data[index * size : (index + 1) * size]
        self._file(request)

    def compute(self, request: Request, count: int) -> None:
        """Run the model over the next tokens of a request."""
        start = request.computed
        previous = self.pool.value(request.blocks, start - 1) if start else self._seed(request)
        values = kv.extend(previous, request.tokens[start : start + count])
        self.pool.write(request.blocks, start, values)
        request.computed += count
        self._file(request)

    def digest(self, request: Request) -> int:
        """Digest over the KV of all computed positions."""
        hashed, state = self._digests.get(request.id) or (0, hashlib.blake2b(digest_size=8))
        state.update(self.pool.span(request.blocks, hashed, request.computed))
        self._digests[request.id] = (request.computed, state)
        return int.from_bytes(state.digest(), "big")

    def verify(self, request: Request, violation: str) -> None:
        """Report a violation when the KV is not that of the request's tokens."""
        if self._oracle.enabled and request.computed:
            right = kv.extend(self._seed(request), request.tokens[: request.computed]).tobytes()
            if self.pool.span(request.blocks, 0, request.computed) != right:
                self._oracle.violation(violation, request.id)

    def update_weights(self, version: int) -> None:
        """Compute with other weights from now on; what lies in the blocks stays."""
        self._weights = f"{self._model} #{version}"

    def forget(self, request: Request) -> None:
        """A request is over or starts anew; its blocks are not touched."""
        self._digests.pop(request.id, None)

    def free(self, request: Request) -> None:
        """Give back all blocks: the request starts anew if it goes on."""
        self.forget(request)
        self.pool.release(request.blocks)
        request.blocks = []
        request.filed = 0
        request.computed = request.local_hit = 0

    def _seed(self, request: Request) -> int:
        adapter = request.identity.adapter
        return kv.seed(f"{self._weights}+{adapter}" if adapter else self._weights)

    def _hash(self, request: Request) -> None:
        request.hashes = block_hashes(
            request.tokens, self.pool.block_size, _cache_key(request), after=request.hashes
        )

    def _file(self, request: Request) -> None:
        full = request.computed // self.pool.block_size
        if self._prefix_caching and full > request.filed:
            self._hash(request)
            for index in range(request.filed, full):
                self.pool.cache(request.blocks[index], request.hashes[index])
            request.filed = full


def _cache_key(request: Request) -> str:
    """What the prefix cache keeps apart, besides tokens."""
    adapter, salt, _ = request.identity
    return f"{adapter}|{salt}" if adapter else salt
