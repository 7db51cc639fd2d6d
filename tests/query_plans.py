"""The statements whose plans must not grow with the tables, and values to plan them with."""

from __future__ import annotations

PLACE: dict[str, object] = {"lo_pos": 7 << 40, "end_pos": 8 << 40}
LANE: dict[str, object] = {"lane": 7, "grp": 1}

DEAD: dict[str, object] = {
    **{"grp": None, "part": None, "reason": None, "after_at": 9000, "before_at": 10**15},
    **{"last_at": 10**15, "last_id": 10**15, "limit": 100, "offset": 0},
}

HOT: dict[str, dict[str, object]] = {
    # claim
    "queue_by_name": {"name": "q"},
    "part_by_name": {"queue": 1, "name": "p7"},
    "lane_of_part": {"part": 7, "prio": 0},
    "group_by_name": {"queue": 1, "name": "g"},
    "cursors_ready": {"grp": 1, "now": 10**15, "limit": 32, "skip": 0},
    "cursors_owned": {"grp": 1, "owner": "me"},
    "cursors_of_part": {"part": 7, "grp": 1},
    "cursors_next_ready": {"grp": 1},
    "spans_in_order": {**LANE, "after": 3, "limit": 500},
    "spans_due": {**LANE, "now": 10**15, "limit": 500},
    "span_next_due": LANE,
    "span_first": LANE,
    "lease_whole_queue": {"grp": 1, "now": 0, "owner": "a"},
    "lease_by_key": {"grp": 1, "key": "job/1"},
    "segment_range": {**PLACE, "limit": 100},
    "segment_at": PLACE,
    # settle
    "lease_by_no": {"no": 77},
    "cursor_get": LANE,
    "cursors_beside": LANE,
    "lease_any_whole_queue": {"grp": 1},
    "span_across": {**LANE, "hi": 3},
    "spans_inside": {**LANE, "lo": 3, "hi": 9},
    "spans_of_lease": {"lease": 77},
    "span_held": {"lease": 77},
    "span_held_in_lane": {"lease": 77, "lane": 7},
    "span_delete": {**LANE, "hi": 3},
    "part_by_uuid": {"uuid": "x"},
    "dead_by_uuid": {"uuid": "x"},
    # push
    "cursor_wake": {"lane": 7, "at": 1, "relaxed": 1},
    "lane_advance": {"id": 7, "head": 9, "now": 1},
    "husk_at": PLACE,
    # sweep
    "leases_expired": {"now": 1, "limit": 200},
    "lease_next_deadline": {},
    "scheduled_due": {"now": 1, "limit": 200},
    "scheduled_next": {},
    "lanes_with_old": {"queue": 1, "cutoff": 1, "after": 0, "limit": 200},
    "segments_first": {**PLACE, "limit": 100},
    "span_lowest": {"lane": 7},
    "cursors_of_lane": {"lane": 7},
    "husks_forget": {"queue": 1, "cutoff": 1, "limit": 100},
    "queues_after": {"after": 5, "limit": 500},
    "queues_max_wait": {"after": 5, "limit": 500},
    "dedupe_windows": {},
    # purge
    "purge_lane_next": {"queue": 1},
    "purge_segments": {**PLACE, "limit": 500},
    "purge_husks": {**PLACE, "limit": 500},
    "purge_spans": {"lane": 7, "limit": 500},
    "purge_cursors": {"lane": 7},
    "purge_parts_next": {"queue": 2, "limit": 500},
    "purge_dead": {"queue": 2, "limit": 500},
    "purge_scheduled": {"queue": 2, "limit": 500},
    "purge_groups": {"queue": 2, "limit": 500},
    # pages of lists
    "queues_page": {"after": "q5", "limit": 100},
    "queues_of_ns": {"ns": "n", "task": None, "after": "q5", "limit": 100},
    "queues_of_task": {"task": "t", "after": "q5", "limit": 100},
    "queues_noted": {"after": "q5", "limit": 100},
    "groups_named": {"name": "g1", "queue": "q5", "limit": 100},
    "part_at": {"queue": 1, "after": "p5", "offset": 99},
    "lanes_filled": {"queue": 1, "lane": 7, "limit": 100},
    "lanes_filled_of_part": {"part": 7, "lane": 7, "limit": 100},
    "dead_sizes": {"queue": 1, **DEAD},
    "dead_sizes_all": DEAD,
    "dead_list": {"queue": 1, **DEAD},
    "dead_list_all": DEAD,
    "dead_with": {"uuid": "x", "queue": None, **DEAD},
    # find a message
    "lane_by_id": {"id": 7},
    "lanes_of_part": {"part": 7},
    "spans_held": {"lease": 77, "tag": 0, "now": 1},
    "span_look": {**LANE, "seq": 3},
    "dead_of_message": {"part": 7, "txid": "t"},
    "dead_any": {**LANE, "lo": 3, "hi": 9},
    "dead_in_range": {**LANE, "epoch": 0, "lo": 3, "hi": 9},
    "scheduled_by_no": {"no": 7},
    # the graph
    "mew_entity_by_id": {"id": "x"},
    "mew_entity_by_no": {"no": 7},
    "mew_entity_last": {},
    "mew_ends_of_edge": {"edge": 7},
    "mew_edges_of_node": {"node": 7},
    "mew_edges_in_slot": {"node": 7, "type": 100, "slot": 0},
    "mew_num_with": {"attr": 1, "value": 1.0},
    "mew_txt_with": {"attr": 1, "value": "x"},
    "mew_items_next": {"pool": 1, "rank": "", "entity": 0, "limit": 20},
    "mew_pools_of": {"entity": 7},
    "mew_delivery_get": {"entity": 7},
    "mew_deliveries_of_watch": {"watch": 7},
    "mew_leases_expired": {"now": 1, "limit": 200},
    "mew_watches_of_session": {"session": 7},
    "mew_watches_of_pool": {"pool": 1},
    "mew_watch_any": {"session": 7},
    "mew_events_next": {"watch": 7, "sent": 3, "tick": 9, "limit": 10},
    "mew_events_prune": {"watch": 7, "upto": 3},
}
LISTS: dict[str, dict[str, object]] = {
    "group_totals": {"queue": 1, "grp": 1},
    "oldest_unfinished": {"queue": 1, "grp": 1},
    "places_of_group": {"queue": 1, "grp": 1, "after": "p5", "limit": 100},
    "partition_lanes": {"queue": 1, "grp": 1, "after": "p5", "limit": 100},
    "spans_leased": {"grp": 1},
    "leases_of_group": {"grp": 1},
    "cursors_of_group": {"grp": 1},
    "cursors_delete": {"grp": 1},
    "dead_count": {"queue": 1, **DEAD},
    "dead_of_queue": {"queue": 1},
    "queue_totals": {"queue": 1},
}
"""They read a whole queue or group, which may be most of a table, but never what belongs to another."""

BIG = (
    *("segment", "husk", "span", "cursor", "lane", "part", "lease", "dead", "scheduled", "dedupe", "queue"),
    *("mew_entity", "mew_end", "mew_num", "mew_txt", "mew_item", "mew_delivery", "mew_event", "mew_watch"),
)
