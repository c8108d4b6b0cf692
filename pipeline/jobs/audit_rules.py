"""The rules of the audit: which violations there are, and the queries that find them.

A violation is what no correct queue manager can have logged, whatever its applications did. So a correct log has none,
also after crashes, with backouts, with many getters at once. The rules, each with the name that a violation bears:

    lsn        inside an extent a record begins where the one before it ends, and LSNs rise from extent to extent
    epoch      a higher epoch never lies before a lower one
    outcome    a unit of work ends once, and does nothing after that
    ordinal    the puts of a unit of work are numbered in the order in which it made them
    sequence   a place on a queue is given to one message only
    arrival    messages became visible in the order of their places, on each queue
    missing    what is got, or expires, was put, and the put was committed
    early      nothing is got before the record that made it visible
    twice      what is gone, got or expired, is not got again
    held       what a unit of work has got nobody else gets before that unit is backed out
    expired    only what was put with an expiry expires
    depth      between two moments at which the log says how deep a queue is, puts and gets make the difference
    overtaken  (only where `--in-order` says so) messages of one priority are got in the order of their places

Order. That in which messages are *put* is provable (`ordinal`, `sequence`, `arrival`). That in which they are *got* is
not: the log does not say whether a get asked for an id or a group, or passed over a message that a client had
and did not acknowledge, so a get that takes a later message while an earlier one is there may be legal. It is counted
as an overtaking, by queue. Who knows that all who get from a queue take what comes first says so with `--in-order`, and
then an overtaking is a violation. A message counts as overtaken only where that is beyond doubt: one of the same
priority that became visible later was got, and that get was committed, before anybody had tried to get the first; so a
message that a unit of work held, or gave back, has not been overtaken. One with an expiry may have been passed over
because its time was over, so it counts only if it was got later. One doubt is left: while a get outside of units of
work waits for room in the log, a unit may get an earlier message and be logged later.

A log that does not reach back to its beginning. A message that was put before the first LSN is got without a put that
the log tells. By the rule `arrival` all that has a higher place than a message whose put is there was put later, so
there a put can be missing; with a lower place nothing can be proved, and the get is counted as unprovable. The same
holds for places of units of work whose first records may lie before the log.

Of media images only the numbers of messages are used.
"""

import attrs
from pyspark.sql import DataFrame

from pipeline.jobs import lives

RULES = {
    "lsn": "a record does not begin where the one before it in its extent ends",
    "epoch": "a record of a lower epoch lies behind one of a higher epoch",
    "outcome": "a unit of work goes on, or ends again, after its outcome",
    "ordinal": "a put of a unit of work does not have a higher ordinal than the one before it",
    "sequence": "two messages that were put and committed have the same place on the queue",
    "arrival": "the message became visible before another one that has a lower place on the queue",
    "missing": "what was got, or expired, has no committed put",
    "early": "the message was got before it became visible",
    "twice": "the message was got, or expired, after it was gone",
    "held": "the message was got, or expired, while a unit of work had it",
    "expired": "the message expired and was put without an expiry",
    "depth": "puts and gets since the last known depth of the queue do not come to the one that the log tells",
    "overtaken": "the message was got before one of the same priority that became visible earlier",
}
COLUMNS = (*lives.NEEDED, "end_lsn", "extent", "epoch", "priority", "expiry", "details")
MAX_COMPARED_DEPTHS = 100  # of a queue
EVERY = "*"
NONE = "cast(null as bigint)"


@attrs.frozen
class Scope:
    """What is known of the log as a whole."""

    whole: bool = True  # it reaches back to its beginning
    in_order: frozenset[str] = frozenset()  # queues that are got from in order only; EVERY: all of them


# Each query below gives the record that is wrong, the one it does not agree with, and what it is about.

# In a good extent the beginnings of the records, but for the first, are the ends of the others: sums and hashes show
# that without sorting. Only the records of extents where that fails are sorted. The windows over whole tables see one
# row for each extent, and for each epoch.
OF_RECORDS = """
with records as (
    select extent, epoch, lsn, end_lsn from {log} where position = 0
), extents as (
    select extent, min(lsn) as first, max(end_lsn) as end, sum(end_lsn - lsn) as bytes,
        bit_xor(xxhash64(lsn)) as begun, bit_xor(xxhash64(end_lsn)) as ended
    from records group by extent
), torn as (
    select extent from extents
    where bytes <> end - first or (begun ^ xxhash64(first)) <> (ended ^ xxhash64(end))
), ordered as (
    select lsn, lag(end_lsn) over (partition by extent order by lsn, end_lsn) as before
    from records left semi join torn using (extent)
), following as (
    select first, max(end) over (order by first rows between unbounded preceding and 1 preceding) as before from extents
), epochs as (
    select epoch, min(lsn) as first, max(lsn) as last from records group by epoch
), higher as (
    select last, min(first) over (order by epoch rows between 1 following and unbounded following) as first from epochs
)
select 'lsn' as rule, lsn, before as other_lsn, cast(null as bigint) as uow, cast(null as string) as object,
    cast(null as int) as object_number, cast(null as bigint) as sequence
from ordered where lsn <> before
union all select 'lsn', first, before, null, null, null, null from following where first < before
union all select 'epoch', last, first, null, null, null, null from higher where last > first
"""

# What a ROLL_FORWARD alone tells, of a unit that began before the log, lies behind what the unit itself has logged.
OF_UNITS = """
with ends as (
    select uow, lsn, min(lsn) over (partition by uow) as first from {log} where kind in ('COMMIT', 'BACKOUT')
), puts as (
    select *, lag(ordinal) over (partition by uow, repeated order by lsn, position) as ordinal_before,
        lag(lsn) over (partition by uow, repeated order by lsn, position) as lsn_before
    from {calls} where uow is not null and kind = 'PUT'
)
select 'outcome' as rule, lsn, first as other_lsn, uow, null as object, null as object_number, null as sequence
from ends where lsn > first
union all
select 'outcome', lsn, outcome_lsn, uow, object, object_number, sequence from {calls} where lsn > outcome_lsn
union all
select 'ordinal', lsn, lsn_before, uow, object, object_number, sequence from puts where ordinal <= ordinal_before
"""

# The next three have no `with`, since what they give is used more than once: see `pipeline/jobs/lives.py`.

# From where on no unit of work has records before the log: the first checkpoint that names a head in it.
KNOWN_FROM = """
select coalesce(min(lsn), {forever}) as known
from (
    select lsn, coalesce({head}, if(get_json_object(details, '$.units') = '0', lsn, null)) as head
    from {log} where kind = 'START_CHECKPOINT'
)
where head >= (select min(lsn) from {log})
"""

# Places from `low` to `high` (not included) of a queue whose puts the log may not tell, for gets behind `since`. Where
# a queue was damaged at a commit the log does not give the places of its messages: any from then on may be such a one.
NOWHERE = """
select object_number, 0L as low, {forever} as high, min(outcome_lsn) as since
from {calls} where kind = 'PUT' and outcome = 'COMMIT' and sequence is null group by object_number
"""

# Where the log does not reach back: what has a lower place than all that is known to have been put; and what units of
# work have put that may have begun before it. Those have the places from that of their ordinal 0 up to their first put
# that is known, or else up to the first place that was given later.
BEFORE = """
select object_number, base as low, least(base + first, next, {forever}) as high, 0L as since
from (
    select cut.object_number, base, first, min(if(visible > lsn, sequence, null)) as next
    from (
        select commits.*, first
        from (
            select uow, lsn, explode(bases) as (object_number, base)
            from {log} cross join {known} where kind = 'COMMIT' and lsn < known
        ) as commits left join (
            select uow, min(ordinal) as first from {calls} where kind = 'PUT' and uow is not null group by uow
        ) as firsts using (uow)
        where first is null or first > 0
    ) as cut left join (select * from {told} where puts > 0) as told on told.object_number = cut.object_number
    group by cut.object_number, uow, lsn, base, first
)
union all
select object_number, 0L, coalesce(min(if(puts > 0, sequence, null)), {forever}), 0L from {told} group by object_number
"""

OF_MESSAGES = """
with doubtful as (
    select object_number, collect_list(struct(low, high, since)) as doubts from {doubts} group by object_number
), looked_at as (
    select *, get(takes, 0) as first, get(filter(takes, take -> take.kind = 'EXPIRE'), 0) as over,
        filter(
            transform(takes, (take, at) -> struct(take, get(takes, at - 1) as before)),
            pair -> pair.take.lsn < pair.before.until
        ) as clashes
    from {told}
), wrong as (
    select object, object_number, sequence, inline(array_compact(concat(
        array(
            if(puts > 1, struct('sequence' as rule, visible_last as lsn, visible as other_lsn, put_uow as uow), null),
            if(puts = 0, struct('missing' as rule, first.lsn as lsn, {none} as other_lsn, first.uow as uow), null),
            if(first.lsn < visible,
                struct('early' as rule, first.lsn as lsn, visible as other_lsn, first.uow as uow), null),
            if(puts > 0 and expiry is null and over is not null,
                struct('expired' as rule, over.lsn as lsn, visible as other_lsn, {none} as uow), null)
        ),
        transform(clashes, pair -> if(
            pair.before.final,
            struct('twice' as rule, pair.take.lsn as lsn, pair.before.ended as other_lsn, pair.take.uow as uow),
            struct('held' as rule, pair.take.lsn as lsn, pair.before.lsn as other_lsn, pair.take.uow as uow)
        ))
    )))
    from looked_at
    where puts <> 1 or size(clashes) > 0 or first.lsn < visible or (expiry is null and over is not null)
)
select
    if(
        rule = 'missing'
        and exists(doubts, one -> sequence >= one.low and sequence < one.high and lsn > one.since),
        'unprovable', rule
    ) as rule,
    lsn, other_lsn, uow, object, wrong.object_number, sequence
from wrong left join doubtful on doubtful.object_number = wrong.object_number
"""

# What has a lower place is looked at by a running maximum inside a bucket of places; of the buckets before it one row
# each is enough.
OF_ORDER = """
with placed as (
    select *, get(filter(takes, take -> take.final and take.kind = 'GET'), 0) as gone,
        struct(visible, sequence) as came,
        struct(
            case
                when get(takes, 0).kind = 'EXPIRE' then 0
                when size(takes) = 0 then if(expiry is null, {forever}, 0)
                else get(takes, 0).lsn
            end as lsn,
            sequence
        ) as tried
    from {told} where puts > 0
), buckets as (
    select object_number, bucket, priority, max(came) as came, max(tried) as tried
    from placed group by object_number, bucket, priority
), before as (
    select object_number, bucket, priority,
        max(came) over (
            partition by object_number order by bucket range between unbounded preceding and 1 preceding
        ) as came_before,
        max(tried) over (
            partition by object_number, priority order by bucket rows between unbounded preceding and 1 preceding
        ) as tried_before
    from buckets
), looked_at as (
    select *,
        greatest(came_before, max(came) over (
            partition by object_number, bucket order by sequence rows between unbounded preceding and 1 preceding
        )) as lower,
        greatest(tried_before, max(tried) over (
            partition by object_number, bucket, priority order by sequence
            rows between unbounded preceding and 1 preceding
        )) as passed
    from placed join before using (object_number, bucket, priority)
)
select inline(array_compact(array(
    if(lower.visible > visible, struct(
        'arrival' as rule, visible as lsn, lower.visible as other_lsn, put_uow as uow,
        object, object_number, sequence
    ), null),
    if(passed.lsn > gone.ended, struct(
        'overtaken' as rule, gone.lsn, nullif(passed.lsn, {forever}) as other_lsn, gone.uow,
        object, object_number, sequence
    ), null)
)))
from looked_at where lower.visible > visible or passed.lsn > gone.ended
"""

# How many messages a queue had before the LSN `at`, said by the record at `lsn`: a media image says so for its
# checkpoint, and the definition of a queue, where the log is whole, that it was empty.
ANCHORS = """
with parts as (
    select get_json_object(details, '$.image_start') as image,
        sum(cast(get_json_object(details, '$.messages') as bigint)) as messages
    from {log} where kind = 'IMAGE_PART' group by 1
), images as (
    select object, object_number, cast(get_json_object(details, '$.checkpoint') as bigint) as at, lsn,
        get_json_object(details, '$.image_start') as image
    from {log} where kind = 'IMAGE_END'
)
select object, object_number, at, coalesce(messages, 0L) as depth, lsn
from images left join parts using (image) cross join {known} where at >= known
union all
select max(object), object_number, min(lsn), 0L, min(lsn)
from {log} cross join {known} where kind = 'DEFINE' and known = 0 group by object_number
"""

OF_DEPTHS = """
with marked as (
    select max(object) as name, object_number, sort_array(collect_list(struct(at, depth, lsn))) as all_marks,
        slice(all_marks, greatest(size(all_marks) - {most}, 0) + 1, {most}) as marks
    from {anchors} left anti join (select * from {doubts} where low = 0 and high = {forever}) as nowhere
        using (object_number)
    group by object_number
), changes as (
    select name, object_number, marks, inline_outer(concat(
        if(puts > 0, array(struct(visible as at, 1 as step)), array()),
        transform(filter(takes, take -> take.final), take -> struct(take.ended as at, -1 as step))
    ))
    from marked left join {told} using (object_number)
), sums as (
    select object_number, any_value(name) as name, any_value(marks) as marks,
        size(filter(marks, mark -> mark.at <= changes.at)) as after, sum(step) as change
    from changes group by object_number, after
), queues as (
    select object_number, any_value(name) as name, any_value(marks) as marks,
        map_from_entries(collect_list(struct(after, change))) as changes
    from sums group by object_number
), steps as (
    select *, posexplode(marks) as (after, mark) from queues
)
select 'depth' as rule, mark.lsn, get(marks, after - 1).lsn as other_lsn, null as uow, name as object,
    object_number, null as sequence
from steps where mark.depth - get(marks, after - 1).depth <> coalesce(changes[after], 0)
"""

FINDINGS = """
with found as (
    select * from {records} union all select * from {units} union all select * from {messages}
    union all select * from {order} union all select * from {depths}
)
select rule,
    not (rule = 'unprovable' or (rule = 'overtaken' and not coalesce({ordered}, false))) as violation,
    lsn, {lsn_text} as at, other_lsn, {other_text} as other_at,
    {queue} as queue, object_number, sequence, uow, map({said})[rule] as what
from found
"""

QUEUES = """
with counted as (
    select object_number, max(object) as object,
        count_if(puts > 0) as put,
        count_if(exists(takes, take -> take.final and take.kind = 'GET')) as got,
        count_if(exists(takes, take -> take.kind = 'EXPIRE')) as expired,
        count_if(puts > 0 and not exists(takes, take -> take.final)) as left,
        sum(size(filter(takes, take -> take.until < {forever}))) as given_back
    from {told} group by object_number
), legal as (
    select object_number, count_if(rule = 'overtaken') as overtakings, count_if(rule = 'unprovable') as unprovable
    from {found} where not violation group by object_number
)
select {queue} as queue, object_number, put, got, expired, left, given_back,
    coalesce(overtakings, 0) as overtakings, coalesce(unprovable, 0) as unprovable
from counted left join legal using (object_number)
"""


def known_from(log: DataFrame, scope: Scope) -> DataFrame:
    """One row, `known`: the LSN from which on no unit of work has records before the log."""
    if scope.whole:
        return lives.query("select 0L as known from {log} limit 1", log=log.limit(1))
    return lives.query(KNOWN_FROM, {"head": lives.lsn_of("get_json_object(details, '$.head')")}, log=log)


def unprovable(log: DataFrame, calls: DataFrame, told: DataFrame, scope: Scope) -> DataFrame:
    """Places on queues whose puts the log may not tell."""
    nowhere = lives.query(NOWHERE, calls=calls)
    if scope.whole:
        return nowhere
    return nowhere.unionByName(lives.query(BEFORE, log=log, calls=calls, told=told, known=known_from(log, scope)))


def findings(log: DataFrame, calls: DataFrame, told: DataFrame, scope: Scope) -> DataFrame:
    """All violations, and with `violation` false what is none: overtakings that may be legal, and `unprovable`.

    `log` has COLUMNS; `calls` are `lives.operations`, `told` are `lives.messages` of them.
    """
    doubts = unprovable(log, calls, told, scope)
    anchors = lives.query(ANCHORS, log=log, known=known_from(log, scope))
    names = ", ".join(f"'{name}'" for name in sorted(scope.in_order))
    words = {
        "ordered": "true" if EVERY in scope.in_order else f"{lives.QUEUE} in ({names})" if names else "false",
        "lsn_text": lives.lsn_text("lsn"),
        "other_text": lives.lsn_text("other_lsn"),
        "said": ", ".join(f"'{rule}', '{text}'" for rule, text in RULES.items()),
    }
    return lives.query(
        FINDINGS,
        words,
        records=lives.query(OF_RECORDS, log=log),
        units=lives.query(OF_UNITS, log=log, calls=calls),
        messages=lives.query(OF_MESSAGES, {"none": NONE}, told=told, doubts=doubts),
        order=lives.query(OF_ORDER, told=told),
        depths=lives.query(OF_DEPTHS, {"most": str(MAX_COMPARED_DEPTHS)}, told=told, anchors=anchors, doubts=doubts),
    )


def queues(told: DataFrame, found: DataFrame) -> DataFrame:
    """What was counted of each queue."""
    return lives.query(QUEUES, told=told, found=found)
