"""The one atomic step of a Redis resource, in Lua, and how it is told and heard.

Redis runs a script alone: nothing comes between its commands. Tokens and indexes go in as decimal strings of
one width and are compared as strings, because a Lua number holds whole numbers up to 2^53 only.
"""

from __future__ import annotations

from typing import Any

import msgpack

from ...core.token import FencingToken

REFUSALS_KEPT = 10_000
NUMBER_WIDTH = 20
"""Digits of a 64-bit number."""

KEYS = ("fence", "operations", "lanes", "claims", "refusals", "accepted", "applied")
"""What the script keeps, under :func:`key_prefix`. ``operations`` is a hash by operation id, ``applied`` the same
by time, only where operations are forgotten after a while."""


KEY_PREFIX = b"fencepost:"
"""No effect may touch a key that begins so."""


def key_prefix(name: str) -> str:
    """All keys of one resource are in one hash slot, by the tag in braces."""
    return f"fencepost:{{{name}}}:"


def number(value: int) -> str:
    return f"{value:0{NUMBER_WIDTH}d}"


def token_text(token: FencingToken) -> str:
    return number(token.incarnation) + number(token.term)


def token_of(text: bytes) -> FencingToken:
    return FencingToken(int(text[:NUMBER_WIDTH]), int(text[NUMBER_WIDTH:]))


def pack(value: Any) -> bytes:
    """For ``cmsgpack``, to which text and bytes are one."""
    return bytes(msgpack.packb(value, use_bin_type=False))


def unpack(data: bytes) -> Any:
    return msgpack.unpackb(data, raw=True, strict_map_key=False)


APPLIED, REPLAYED, REUSED, SUPERSEDED, FAILED, WAITS, BEHIND = (b"A", b"R", b"U", b"S", b"F", b"W", b"B")
DOUBTFUL = b"D"
"""What the script says of one attempt."""

PASSED, STALE, DUPLICATE, FOREIGN, FORGOTTEN = (b"PASSED", b"STALE", b"DUPLICATE", b"FOREIGN", b"FORGOTTEN")
"""What it says of the batch. Nothing of the batch was applied unless it is PASSED."""

SCRIPT = """
local fence, operations, lanes, claims, refusals, accepted, applied = unpack(KEYS)
local cluster, token, holder, now, claimed, forget_before = unpack(ARGV)
local attempts = ARGV[7] ~= '' and cmsgpack.unpack(ARGV[7]) or nil
local RESULT_BYTES_MAX = 65536

-- 1. Cluster, then fence: before anything else, because a stale leader must hear that it is stale.
local stored = redis.call('HMGET', fence, 'cluster', 'token', 'holder')
local function answer(code, outcomes)
  return {code, stored[1] or '', stored[2] or '', stored[3] or '', outcomes or {}}
end
local function refuse(code, reason)
  local ids = {}
  for place, attempt in ipairs(attempts or {}) do ids[place] = attempt[1] end
  redis.call('RPUSH', refusals, cmsgpack.pack({now, token, holder, stored[2], stored[3], ids, reason}))
  redis.call('LTRIM', refusals, -REFUSALS_KEPT, -1)
  return answer(code)
end
if stored[1] and stored[1] ~= cluster then return answer('FOREIGN') end
if attempts and claimed ~= '' and (not stored[2] or stored[2] < claimed) then return answer('FORGOTTEN') end
if stored[2] and token < stored[2] then return refuse('STALE', 'STALE_LEADER') end
if stored[2] == token and stored[3] ~= holder then return refuse('DUPLICATE', 'DUPLICATE_GENERATION') end

-- 2. Advance. A server that has no room says so here, at the first write, and not between an effect and its record.
local sequence = redis.call('INCRBY', accepted, 0)
if not stored[2] or token > stored[2] then
  redis.call('HSET', fence, 'cluster', cluster, 'token', token, 'holder', holder)
  redis.call('RPUSH', claims, cmsgpack.pack({token, holder, sequence, now}))
end
if not attempts then return answer('PASSED') end

if forget_before ~= '' then
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', applied, '-inf', forget_before, 'LIMIT', 0, 256)) do
    redis.call('HDEL', operations, id)
    redis.call('ZREM', applied, id)
  end
end

-- 3. Redis does not roll back. An effect of several commands takes note of what it changes, and puts it back itself.
local HASH = {HSET = true, HSETNX = true, HINCRBY = true, HINCRBYFLOAT = true}
local function note(words)
  local name, key = words[1], words[2]
  local kind = redis.call('TYPE', key).ok
  if HASH[name] and kind == 'hash' and #words > 2 then
    local fields = {}
    for place = 3, #words, 2 do fields[#fields + 1] = words[place] end
    local before = redis.call('HMGET', key, unpack(fields))
    return function()
      for place, field in ipairs(fields) do
        if before[place] then redis.call('HSET', key, field, before[place]) else redis.call('HDEL', key, field) end
      end
    end
  end
  if (name == 'RPUSH' or name == 'LPUSH') and kind == 'list' then
    local length = redis.call('LLEN', key)
    return function()
      if name == 'RPUSH' then redis.call('LTRIM', key, 0, length - 1) else redis.call('LTRIM', key, -length, -1) end
    end
  end
  local was = redis.call('DUMP', key)
  local left = was and redis.call('PTTL', key)
  return function()
    if not was then return redis.call('DEL', key) end
    redis.call('RESTORE', key, left < 0 and 0 or math.max(left, 1), was, 'REPLACE')
  end
end

local function plain(reply)
  if type(reply) ~= 'table' then return reply end
  if reply.ok then return reply.ok end
  local copy = {}
  for place, each in ipairs(reply) do copy[place] = plain(each) end
  return copy
end

local SERVER = {OOM = true, MISCONF = true, READONLY = true, NOREPLICAS = true, NOPERM = true, MASTERDOWN = true}
local function run(commands)
  local replies, undo = {}, {}
  for place, words in ipairs(commands) do
    if place < #commands then undo[place] = note(words) end
    local reply = redis.pcall(unpack(words))
    if type(reply) == 'table' and reply.err then
      for back = place - 1, 1, -1 do undo[back]() end
      local code = string.match(reply.err, '^(%u+) ')
      return nil, (SERVER[code] and 'W' or 'F'), reply.err
    end
    replies[place] = plain(reply)
  end
  local result = cmsgpack.pack(replies)
  -- The effect is done: a result that cannot be kept does not undo it.
  return #result <= RESULT_BYTES_MAX and result or ''
end

-- 4. Dedupe, lane, effect, record: one attempt after the other.
local outcomes, blocked = {}, {}
for place, attempt in ipairs(attempts) do
  local id, digest, effect, lane, index, try, commands, status, error = unpack(attempt, 1, 9)
  local outcome
  if lane ~= '' and blocked[lane] then
    outcome = {'B', ''}
  else
    local known = redis.call('HGET', operations, id)
    local reached = lane ~= '' and redis.call('HGET', lanes, lane)
    local here = string.sub(token, 1, 20) .. index
    if known then
      known = cmsgpack.unpack(known)
      outcome = known[2] == digest and {'R', known[10]} or {'U', ''}
    elseif status == 'D' then
      outcome = {status, error}
    elseif reached and here <= reached then
      outcome = {'S', reached}
    elseif status ~= '' then
      outcome = {status, error}
    else
      local result, code, why = run(commands)
      if code then
        outcome = {code, why}
      else
        sequence = redis.call('INCR', accepted)
        redis.call('HSET', operations, id, cmsgpack.pack(
          {sequence, digest, effect, lane, index, token, holder, try, now, result}))
        if forget_before ~= '' then redis.call('ZADD', applied, string.sub(now, 1, -7), id) end
        if lane ~= '' then redis.call('HSET', lanes, lane, here) end
        outcome = {'A', result}
      end
    end
  end
  if lane ~= '' and outcome[1] ~= 'A' and outcome[1] ~= 'R' then blocked[lane] = true end
  outcomes[place] = outcome
end
return answer('PASSED', outcomes)
""".replace("REFUSALS_KEPT", str(REFUSALS_KEPT))

QUERY = """
local stored = redis.call('HMGET', KEYS[1], 'cluster', 'token', 'holder')
return {stored[1] or '', stored[2] or '', stored[3] or '', redis.call('HGET', KEYS[2], ARGV[1]) or ''}
"""
"""The fence and what is kept of one operation, as they stand at one moment."""

RECORD_DIGEST, RECORD_RESULT = 1, 9
"""Where they are in what is kept of an operation."""
