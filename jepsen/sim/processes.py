"""What can be done to processes and their disks: starts, ends of every kind, stops, and orderly ends.

Ends differ in what is left. A *kill* leaves what was written, synced or not. A *power cut* leaves what
was synced, and chance decides about the rest. Either may come in the middle of a write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum

from ...raft.core.errors import FencepostError, StateMiscounted
from ...raft.core.token import FencingToken
from .agenda import ProcessEnded
from .host import Host
from .node import SimNode
from .process import Process
from .surroundings import Surroundings

CUT_OPERATIONS_MAX = 6
"""A process that ends during a write is cut off at one of its first so many operations, or behind the last."""
DRAIN_S = 3.0
HAND_OVER_S = 1.5
"""Both as the real node's planned stop has them."""


class Loss(Enum):
    """What an end takes with it of what was written and not synced."""

    NOTHING = "nothing"
    UNSYNCED = "unsynced"
    TORN = "torn"


class Processes(Surroundings):
    """The part of the world that starts and ends processes."""

    # -- starts -------------------------------------------------------------------------------------

    def start(self, name: str, *, after_ns: int = -1, cut_at: int = 0, power: bool = False) -> None:
        """Start the process of a node, if none runs, after the time that starting takes (or ``after_ns``).

        With ``cut_at`` it is killed at that operation of its disk while it starts (``power``: by a power
        cut), if it makes so many.
        """
        host = self.hosts[name]
        host.starting += 1
        settings = self.disk_settings
        delay_ns = host.chance.randint(settings.start_min_ns, settings.start_max_ns) if after_ns < 0 else after_ns
        self.outside.call_after_ns(delay_ns, self._boot, host, host.starting, cut_at, power)

    def _boot(self, host: Host, starting: int, cut_at: int, power: bool) -> None:
        if host.node is not None or starting != host.starting:
            return
        clock = host.clock()
        process = Process(self.agenda, clock)
        if cut_at:
            host.disk.end_at(cut_at, process.kill)
        asyncio._set_running_loop(process.loop)
        try:
            node = SimNode(self, host, process, clock)
        except ProcessEnded:
            self._left_behind(host, Loss.TORN if power else Loss.NOTHING)
            self._ended(host, None, "cut off while it started")
            return
        except StateMiscounted as error:  # No damage does that.
            raise self.violation(f"{host.name} cannot start: {error.message}") from error
        except FencepostError as error:
            process.kill()
            host.disk.kill()
            host.refused = error
            self._ended(host, None, f"refused to start: {error.code}: {error.message}")
            return
        host.disk.never_mind_the_end()
        host.refused = None
        host.node = node
        raft = node.raft
        self.trace.note(self.now_ns, host.name, "started: boot", node.boot, "term", raft.current_term, "log to",
                        raft.log.last_index, "committed", raft.commit_index)  # fmt: skip
        node.loop.failed.add_done_callback(lambda failed: self._exits(node, failed.result()))
        for look in self.hooks.node_started:
            look(node)
        node.start()

    # -- ends ---------------------------------------------------------------------------------------

    def kill(self, name: str, *, cut_at: int = 0) -> None:
        """SIGKILL. What was written stays; a write under way is cut off at its operation ``cut_at``, or where
        chance will have it."""
        self._end(self.hosts[name], "killed", Loss.NOTHING, cut_at)

    def cut_power(self, name: str, *, cut_at: int = 0, torn: bool = True) -> None:
        """The machine loses its power, in the middle of a write if one is under way, as for :meth:`kill`.

        ``torn``: of what was not synced chance leaves sectors and names; else nothing.
        """
        self._end(self.hosts[name], "lost power", Loss.TORN if torn else Loss.UNSYNCED, cut_at)

    def cut_at_operation(self, name: str, nth: int, *, power: bool = False) -> None:
        """End the process at the nth operation of its disk from now on, whichever that will be."""
        host = self.hosts[name]
        node = self.node(name)

        def end() -> None:
            # In the middle of something of its own: what is left is judged when that has been unwound.
            node.process.kill(silent=power)
            self.outside.call_soon(self._cut_off, host, node, power)

        host.disk.end_at(nth, end)

    def _cut_off(self, host: Host, node: SimNode, power: bool) -> None:
        if host.node is node:
            self._left_behind(host, Loss.TORN if power else Loss.NOTHING)
            self._gone(host, node, "lost power in a write" if power else "killed in a write", told=not power)

    def _end(self, host: Host, why: str, loss: Loss, cut_at: int) -> None:
        host.starting += 1
        node = host.node
        if node is not None:
            node.process.kill(silent=loss is not Loss.NOTHING)
            for busy, part in (
                (node.writer.syncing, node.writer),
                (node.runner.working, node.runner),
                (node.reader.working, node.reader),
            ):
                if busy:
                    host.disk.end_at(cut_at or host.chance.randint(1, CUT_OPERATIONS_MAX), lambda: None)
                    part.cut_off()
        self._left_behind(host, loss)
        if node is not None:
            self._gone(host, node, why, told=loss is Loss.NOTHING)

    def _left_behind(self, host: Host, loss: Loss) -> None:
        if loss is Loss.NOTHING:
            host.disk.kill()
        else:
            host.disk.lose_power(host.chance if loss is Loss.TORN else None)

    def _gone(self, host: Host, node: SimNode, why: str, *, told: bool) -> None:
        host.node = None
        self.network.dialling.left(node.transport, told=told)
        self._ended(host, node, why)

    def _ended(self, host: Host, node: SimNode | None, why: str) -> None:
        host.ends.append((self.now_ns, why))
        self.trace.note(self.now_ns, host.name, why)
        if node is not None:
            for look in self.hooks.node_ended:
                look(node, why)

    def _exits(self, node: SimNode, error: BaseException) -> None:
        """The node has failed, and its process ends as the real one does."""
        host = node.host
        if host.node is not node:
            return
        self.judge_end(node, error)
        code = getattr(error, "code", type(error).__name__)
        self._end_in_order(host, node, f"exited: {code}: {error}")

    def _end_in_order(self, host: Host, node: SimNode, why: str) -> None:
        node.loop.stop()
        node.process.kill()
        node.writer.close()
        node.directory.close()
        host.disk.kill()
        self._gone(host, node, why, told=True)

    # -- orderly ends, stops, and slowness ----------------------------------------------------------

    def stop(self, name: str) -> None:
        """SIGTERM: the node takes nothing new in, finishes what is under way, hands its leadership over, and
        ends. Every stage is bounded."""
        host, node = self.hosts[name], self.node(name)

        async def end() -> None:
            node.service.stop_admitting()
            await node.effects.drain(DRAIN_S)
            await node.handover.hand_over(HAND_OVER_S)
            self.outside.call_soon(ended)

        def ended() -> None:
            if host.node is node:
                self._end_in_order(host, node, "stopped")

        def begin() -> None:
            node.process.loop.create_task(end())

        node.process.loop.call_soon(begin)

    def pause(self, name: str, duration_ns: int = 0) -> None:
        """SIGSTOP; with a duration SIGCONT after it."""
        node = self.node(name)
        self.trace.note(self.now_ns, name, "paused")
        node.process.pause()
        self.network.dialling.stopped(name)
        if duration_ns:
            self.outside.call_after_ns(duration_ns, self._resume, node)

    def resume(self, name: str) -> None:
        """SIGCONT."""
        self._resume(self.node(name))

    def _resume(self, node: SimNode) -> None:
        if node.process.paused and node.up:
            self.trace.note(self.now_ns, node.name, "resumed")
            node.process.resume()

    def block(self, name: str, duration_ns: int) -> None:
        """The node's loop is held up by one long callback; its effects and its log's writer go on."""
        self.trace.note(self.now_ns, name, "loop blocked for", duration_ns)
        self.node(name).process.loop.block(duration_ns)

    def block_effects(self, name: str, duration_ns: int) -> None:
        """A handler holds up the thread of the effects; the node goes on."""
        self.trace.note(self.now_ns, name, "effects blocked for", duration_ns)
        self.node(name).effects_thread.block(duration_ns)

    def slow_down(self, name: str, cost_ns: int) -> None:
        """From now on every callback of the node's loop takes so long; 0: no time, as usual."""
        self.trace.note(self.now_ns, name, "every callback takes", cost_ns)
        self.node(name).process.loop.slow_down(cost_ns)

    def when_effect_under_way(self, name: str, action: Callable[[], object], *, within_ns: int) -> None:
        """Do something at the first moment within that time at which a call of an effect is on its way."""
        node = self.node(name)
        if any(resource.under_way for resource in node.resources.values()):
            action()
            return
        end_ns = self.now_ns + within_ns
        looks = self.hooks.on_effect

        def look(source: str, resource: str, token: FencingToken) -> None:
            if source == name or self.now_ns > end_ns:
                looks.remove(look)
                if source == name and self.now_ns <= end_ns:
                    # It is about to leave: not in the middle of what the node does there.
                    self.outside.call_soon(action)

        looks.append(look)

    # -- disks --------------------------------------------------------------------------------------

    def hang_syncs(self, name: str) -> None:
        """No sync of this node comes back, the one under way excepted, until ``syncs_go_on``."""
        self.hosts[name].syncs_hang = True

    def syncs_go_on(self, name: str) -> None:
        host = self.hosts[name]
        host.syncs_hang = False
        if host.node is not None:
            host.node.writer.go_on()
            host.node.runner.go_on()
            host.node.reader.go_on()
