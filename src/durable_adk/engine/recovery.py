"""Find executions that are due and go on with them: a lease ran out, a back-off has passed, the
last answer came. Also the shared state that a crash left unapplied.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from durable_adk.engine.expiring import Expiring
from durable_adk.engine.passing import passed
from durable_adk.engine.ports import Store
from durable_adk.engine.reads import committed_steps
from durable_adk.engine.retention import sweep_shared
from durable_adk.engine.running import Attempts
from durable_adk.errors import CorruptHistory, KeyMissing, LeaseLost, NotFound, Unavailable
from durable_adk.model.execution import Execution
from durable_adk.model.identity import ExecutionKey, Tenant

logger = logging.getLogger("durable_adk.engine")

AT_ONCE = 10
"""How many executions one process goes on with at the same time."""


class Recovery:
    """One pass over what is due for a tenant."""

    def __init__(
        self,
        attempts: Attempts,
        *,
        store: Store,
        tenant: Tenant,
        version: str | None,
        expiring: Expiring,
    ) -> None:
        self._attempts = attempts
        self._expiring = expiring
        self._store = store
        self._tenant = tenant
        self._version = version

    async def due(self, limit: int) -> tuple[ExecutionKey, ...]:
        """What could be claimed now, longest due first, without what already runs here; nothing
        once this process closes.

        A lease of ours that ran out because the loop was blocked is left alone: its next
        renewal gives the right back, and a claim of ours would only throw its work away.
        """
        if self._attempts.closing:
            return ()
        found = await self._store.list_due(self._tenant, version=self._version, limit=limit)
        return tuple(key for key in found if self._attempts.live(key) is None)

    async def apply_scopes(self, limit: int) -> None:
        """Apply committed shared state that its owner did not live to apply. What cannot be read
        stays due: the next turn of its session says why."""

        async def listed(most: int) -> Sequence[Execution]:
            return await self._store.list_scopes_due(self._tenant, limit=most)

        await self._each_read(listed, self._apply, "cannot apply shared state", limit)

    async def apply_expiries(self, limit: int) -> None:
        """Give the expiry answers that executions of other versions are due. It takes no code of
        theirs: a question that nobody answered in time is closed although only new workers run.
        Going on with them is left to workers of their version.
        """
        if self._version is None:
            return  # then all are claimed here
        version = self._version

        async def listed(most: int) -> Sequence[Execution]:
            return await self._store.list_expired_elsewhere(
                self._tenant, version=version, limit=most
            )

        async def apply(execution: Execution) -> bool:
            return await self._expiring.apply(execution) != execution

        await self._each_read(listed, apply, "cannot apply an expiry", limit)

    async def _each_read(
        self,
        listed: Callable[[int], Awaitable[Sequence[Execution]]],
        apply: Callable[[Execution], Awaitable[bool]],
        otherwise: str,
        limit: int,
    ) -> None:
        """Apply up to ``limit`` one by one; what cannot be read must not stop the others, nor may
        a document that is not even listed end the pass."""

        async def applied(execution: Execution) -> bool:
            try:
                return await apply(execution)
            except NotFound:  # removed since it was listed, and applied by whoever removed it
                return False
            except (CorruptHistory, KeyMissing) as error:
                shown = {"execution_id": execution.execution_id}
                logger.warning("%s: %s", otherwise, error, extra=shown)
                return False

        async def settled(found: Sequence[Execution]) -> list[bool]:
            return [await applied(execution) for execution in found]

        try:
            await passed(listed, settled, limit=limit)
        except (CorruptHistory, KeyMissing) as error:
            logger.warning("%s, of nothing that is due: %s", otherwise, error)

    async def sweep_shared(self) -> None:
        """Remove what overwritten shared state has left."""
        await sweep_shared(self._store, self._tenant)

    async def _apply(self, execution: Execution) -> bool:
        steps = await committed_steps(self._store, execution)
        if steps:
            await self._store.apply_scopes(execution, steps[-1])
        return bool(steps)

    async def once(self, limit: int) -> tuple[Execution, ...]:
        """Go on with everything that is due, ``AT_ONCE`` at a time, each to its next stop.

        Returns: where each was left. Not those that another process took first, nor those whose
            attempt broke off: that is logged, and they stay due. Nor what was not claimed yet when
            this process began to close.
        Raises: Unavailable: MongoDB does not answer, or the store was closed meanwhile.
        """
        await self.apply_scopes(limit)
        await self.apply_expiries(limit)
        await self.sweep_shared()
        slots = asyncio.Semaphore(AT_ONCE)
        left: list[Execution] = []

        async def go_on(key: ExecutionKey) -> tuple[Execution | None, bool]:
            async with slots:
                return await self._go_on(key)

        async def settled(found: Sequence[ExecutionKey]) -> list[bool]:
            outcomes = await asyncio.gather(*map(go_on, found))
            left.extend(execution for execution, _ in outcomes if execution is not None)
            return [is_read for _, is_read in outcomes]

        try:
            await passed(self.due, settled, limit=limit)
        except Unavailable:
            if not left:
                raise
        return tuple(left)

    async def _go_on(self, key: ExecutionKey) -> tuple[Execution | None, bool]:
        """Claim one execution and bring it to its next stop.

        Returns: it, or None if that did not happen; and False if it cannot be read, and stays due.
        """
        try:
            return await self._attempts.outcome(self._attempts.claim(key)), True
        except LeaseLost:
            return None, True
        except (CorruptHistory, KeyMissing):
            return None, False
        except Exception:  # one broken attempt, logged where it broke, does not stop the others
            return None, True
