// What a job is like: whether it runs, for how long, and what to say first of one that does not.

import { duration, time } from "./units.js";

// A job of another program that has told nothing for so long has probably died.
const SILENT_MS = 60000;

export const isRunning = (job) => !job.ended_ms && (job.is_live || Date.now() - job.heard_ms < SILENT_MS);
export const untilMs = (job) => job.ended_ms ?? (isRunning(job) ? Date.now() : job.heard_ms);
export const lagOf = (operator, job) =>
  (operator.watermark_ms === null ? "–" : duration(Math.max(0, untilMs(job) - operator.watermark_ms)));
const ago = (ms) => `${duration(Math.max(0, Date.now() - ms))} ago`;

export const statusOf = (job) => (job.ended_ms || isRunning(job) ? job.status : "NO END KNOWN");

// What to know first of a job that does not run: that, since when, and where it can go on.
export function noticeOf(job) {
  if (isRunning(job)) return job.is_live ? "" : "This job runs in another program; the page reads its journal.";
  const saved = job.last_checkpoint;
  const from = saved ? ` Its last checkpoint is ${saved.checkpoint_id}, after epoch ${saved.epoch}.` : "";
  return job.ended_ms ? `This job has ended (${job.status}) at ${time(job.ended_ms)}, ${ago(job.ended_ms)}.` + (job.status === "FINISHED" ? "" : from)
    : `This job does not run: nothing has been heard of it since ${time(job.heard_ms)}, ${ago(job.heard_ms)}, and no end is known.` + from;
}

// The address of Spark's page, which is there while the job runs; nothing but http is a link.
export function sparkOf(job) {
  const page = job.settings?.["spark.page"] ?? "";
  return job.is_live && !job.ended_ms && /^https?:\/\//.test(page) ? page : null;
}
