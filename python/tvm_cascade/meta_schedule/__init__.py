"""Hand-off to TVM's MetaSchedule: the schedule rules that fused functions ask for by annotation."""
