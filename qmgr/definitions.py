"""Definitions of queues, of aliases and the queue manager: each change is checked, logged, applied and forced."""

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from qmgr import verbs
from qmgr.errors import AlreadyExists, Mistake, ObjectInUse, Reason, UnknownQueue
from qmgr.objects import AliasDefinition, QmgrDefinition, QueueDefinition, check_flag, check_name, with_attributes
from qmgr.units import Units
from recovery.records import AlterQmgr, Define, DefineAlias, Delete, DeleteAlias, Record


class Definitions(Units):
    """Changes of queues, aliases and the queue manager; each raises ResourceProblem where the log has no room."""

    def define(self, name: Any, attributes: Mapping[str, Any]) -> QueueDefinition:
        """Define a local queue; returns its definition, but for the id. Raises NameError_, AlreadyExists, Mistake."""
        check_name(name, "queue")
        plain = with_attributes(QueueDefinition(name=name), attributes)

        def record() -> Record:
            self._check_new(name)
            return Define(attrs.evolve(plain, id=self.state.next_queue).encode())

        self._change(record)
        return plain

    def _check_new(self, name: str) -> None:
        """Queues and aliases share their names. Raises AlreadyExists."""
        if name in self.state.queues:
            raise AlreadyExists(f"queue {name!r} exists; use alter_queue to change it", name=name)
        if name in self.state.aliases:
            raise AlreadyExists(f"{name!r} is an alias; use alter_alias to change it", name=name)

    def alter(self, name: Any, attributes: Mapping[str, Any]) -> QueueDefinition:
        """Change attributes of a local queue; returns its definition. Raises UnknownQueue, Damaged, Mistake."""
        changed = with_attributes(verbs.local_queue(self.state, name).definition, attributes)

        def record() -> Record:
            nonlocal changed
            changed = with_attributes(verbs.local_queue(self.state, name).definition, attributes)
            return Define(changed.encode())

        self._change(record)
        self._wake(name)
        return changed

    def _wake(self, name: str) -> None:
        """Wake the gets that wait at the queue: gets may be disabled now."""
        with self.lock:
            if name in self.state.queues:
                self.state.queues[name].waiters.wake_all()

    def alter_qmgr(self, attributes: Mapping[str, Any]) -> QmgrDefinition:
        """Change attributes of the queue manager; returns all of them. Raises Mistake."""
        changed = with_attributes(self.state.qmgr, attributes)

        def record() -> Record:
            nonlocal changed
            changed = with_attributes(self.state.qmgr, attributes)
            return AlterQmgr(changed.encode())

        self._change(record)
        self.take_qmgr_attributes()
        return changed

    def delete(self, name: Any, *, purge: Any) -> None:
        """Delete a local queue, `purge`: with its messages. Raises UnknownQueue, ObjectInUse (2042, 2055), Mistake."""
        check_name(name, "queue")
        check_flag(purge, "purge")

        def record() -> Record:
            queue = self.state.queues.get(name)
            if queue is None:
                verbs.refuse_alias(self.state, name)
                raise UnknownQueue(f"there is no queue {name!r}", name=name)
            if queue.uncommitted:
                raise ObjectInUse(
                    f"queue {name!r} is used by open units of work (messages: {queue.uncommitted})", name=name
                )
            doubtful = next((unit for unit in self.state.uows if queue.id in unit.lost), None)
            if doubtful is not None:  # a restart needs the queue as long as it reads what the unit of work has done
                raise ObjectInUse(
                    f"queue {name!r} is damaged, and unit of work {doubtful.number} that is in doubt has used it; "
                    f"resolve that first",
                    name=name,
                )
            if queue.damaged and not purge:
                raise ObjectInUse(
                    f"queue {name!r} is damaged, and its messages may come back (rcrmqobj, or a backup); delete it "
                    f"with PURGE (purge=True) if they are not wanted",
                    reason=Reason.Q_NOT_EMPTY,
                    name=name,
                )
            if queue.depth and not purge:
                raise ObjectInUse(
                    f"queue {name!r} holds {queue.depth} messages; get them, or delete it with PURGE (purge=True)",
                    reason=Reason.Q_NOT_EMPTY,
                    name=name,
                )
            return Delete(queue.id)

        self._change(record)

    # ---- aliases

    def define_alias(self, name: Any, target: Any, attributes: Mapping[str, Any]) -> AliasDefinition:
        """Define an alias of a queue that need not be there yet. Raises NameError_, AlreadyExists, Mistake."""
        check_name(name, "alias")
        alias = with_attributes(AliasDefinition(name=name, target=target), attributes)

        def record() -> Record:
            self._check_new(name)
            return DefineAlias(alias.encode())

        self._change(record)
        return alias

    def alter_alias(self, name: Any, attributes: Mapping[str, Any]) -> AliasDefinition:
        """Change attributes of an alias; returns its definition. Raises UnknownQueue, Mistake."""
        before = changed = self.known_alias(name)

        def record() -> Record:
            nonlocal before, changed
            before = self.known_alias(name)
            changed = with_attributes(before, attributes)
            return DefineAlias(changed.encode())

        self._change(record)
        self._wake(before.target)
        return changed

    def delete_alias(self, name: Any) -> None:
        """Delete an alias; its queue stays. Raises UnknownQueue, Mistake."""
        before = self.known_alias(name)

        def record() -> Record:
            nonlocal before
            before = self.known_alias(name)
            return DeleteAlias(before.name)

        self._change(record)
        self._wake(before.target)

    def known_alias(self, name: Any) -> AliasDefinition:
        """The alias of this name. Raises NameError_, UnknownQueue, Mistake (2057) for a queue."""
        self.check()
        alias = self.state.aliases.get(name) if isinstance(name, str) else None
        if alias is not None:
            return alias
        check_name(name, "alias")
        if name in self.state.queues:
            raise Mistake(f"{name!r} is a queue, not an alias", reason=Reason.Q_TYPE_ERROR, name=name)
        raise UnknownQueue(f"there is no alias {name!r}; define it first", name=name)

    def _change(self, make: Callable[[], Record]) -> None:
        """Log, apply and force a change of a definition.

        `make` is asked for the record under the lock, and again where that was let go of to make room for it.
        """
        self.check()
        with self.translating():
            with self.lock:
                self.check()
                self.log_held()
                end = self._append_and_apply(self._with_room(make), self.clock.wall_us())
            self.log.force(end)
