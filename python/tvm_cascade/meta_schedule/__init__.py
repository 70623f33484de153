"""Integration with TVM's MetaSchedule: the schedule rules that fused functions name in an annotation."""
