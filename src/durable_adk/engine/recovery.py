"""Find executions that are due and go on with them: a lease ran out, a back-off has passed, the
last answer came. Also the shared state that a crash left unapplied.
"""

from __future__ import annotations

import asyncio
import logging

from durable_adk.engine.expiring import Expiring
from durable_adk.engine.ports import Store
from durable_adk.engine.reads import committed_steps
from durable_adk.engine.retention import sweep_shared
from durable_adk.engine.running import Attempts
from durable_adk.errors import CorruptHistory, KeyMissing, LeaseLost, NotFound
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
        """What could be claimed now, longest due first, without what already runs here.

        A lease of ours that ran out because the loop was blocked is left alone: its next
        renewal gives the right back, and a claim of ours would only throw its work away.
        """
        found = await self._store.list_due(self._tenant, version=self._version, limit=limit)
        return tuple(key for key in found if self._attempts.live(key) is None)

    async def apply_scopes(self, limit: int) -> None:
        """Apply committed shared state that its owner did not live to apply. What cannot be read
        stays due: the next turn of its session says why."""
        for execution in await self._store.list_scopes_due(self._tenant, limit=limit):
            try:
                await self._apply(execution)
            except NotFound:
                pass  # removed since it was listed, and applied by whoever removed it
            except (CorruptHistory, KeyMissing) as error:  # it must not stop the others
                shown = {"execution_id": execution.execution_id}
                logger.warning("cannot apply shared state: %s", error, extra=shown)

    async def apply_expiries(self, limit: int) -> None:
        """Give the expiry answers that executions of other versions are due. It takes no code of
        theirs: a question that nobody answered in time is closed although only new workers run.
        Going on with them is left to workers of their version.
        """
        if self._version is None:
            return  # then all are claimed here
        found = await self._store.list_expired_elsewhere(
            self._tenant, version=self._version, limit=limit
        )
        for execution in found:
            try:
                await self._expiring.apply(execution)
            except (CorruptHistory, KeyMissing) as error:  # it must not stop the others
                shown = {"execution_id": execution.execution_id}
                logger.warning("cannot apply an expiry: %s", error, extra=shown)

    async def sweep_shared(self) -> None:
        """Remove what overwritten shared state has left."""
        await sweep_shared(self._store, self._tenant)

    async def _apply(self, execution: Execution) -> None:
        steps = await committed_steps(self._store, execution)
        if steps:
            await self._store.apply_scopes(execution, steps[-1])

    async def once(self, limit: int) -> tuple[Execution, ...]:
        """Go on with everything that is due, ``AT_ONCE`` at a time, each to its next stop.

        Returns: where each was left. Not those that another process took first, nor those whose
            attempt broke off: that is logged, and they stay due.
        """
        await self.apply_scopes(limit)
        await self.apply_expiries(limit)
        await self.sweep_shared()
        slots = asyncio.Semaphore(AT_ONCE)

        async def go_on(key: ExecutionKey) -> Execution | None:
            async with slots:
                return await self.go_on(key)

        outcomes = await asyncio.gather(*map(go_on, await self.due(limit)))
        return tuple(execution for execution in outcomes if execution is not None)

    async def go_on(self, key: ExecutionKey) -> Execution | None:
        """Claim one execution and bring it to its next stop; None if that did not happen."""
        try:
            return await self._attempts.outcome(self._attempts.claim(key))
        except LeaseLost:
            return None
        except Exception:  # one broken attempt, logged where it broke, does not stop the others
            return None
