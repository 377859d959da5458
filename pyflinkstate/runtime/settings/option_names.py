"""Which keys of a ``Configuration`` are Flink's, and what a key that does nothing here may be meant to be.

The names are those of Flink 2.3's documentation and of older releases whose names it still takes.
"""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches
from typing import Final

_FLINK_OPTIONS: Final = """
    classloader.check-leaked-classloader classloader.fail-on-metaspace-oom-error
    classloader.parent-first-patterns classloader.parent-first-patterns.additional
    classloader.parent-first-patterns.default classloader.resolve-order
    client.heartbeat.interval client.heartbeat.timeout client.retry-period client.timeout
    env.hadoop.conf.dir env.hbase.conf.dir env.java.default-opts.all env.java.default-opts.jobmanager
    env.java.default-opts.taskmanager env.java.home env.java.opts env.java.opts.all env.java.opts.client
    env.java.opts.historyserver env.java.opts.jobmanager env.java.opts.sql-gateway env.java.opts.taskmanager
    env.log.dir env.log.level env.log.max env.pid.dir env.ssh.opts env.stdout-err.redirect-to-file
    env.yarn.conf.dir
    execution.allow-client-job-configurations execution.async-state.active-buffer-size
    execution.async-state.active-buffer-timeout execution.async-state.total-buffer-size execution.attached
    execution.batch-shuffle-mode execution.batch-state-backend.enabled
    execution.batch.adaptive.auto-parallelism.avg-data-volume-per-task
    execution.batch.adaptive.auto-parallelism.default-source-parallelism
    execution.batch.adaptive.auto-parallelism.enabled
    execution.batch.adaptive.auto-parallelism.max-parallelism
    execution.batch.adaptive.auto-parallelism.min-parallelism execution.batch.job-recovery.enabled
    execution.batch.job-recovery.previous-worker.recovery.timeout
    execution.batch.job-recovery.snapshot.min-pause execution.batch.speculative.block-slow-node-duration
    execution.batch.speculative.enabled execution.batch.speculative.max-concurrent-executions
    execution.buffer-timeout execution.buffer-timeout.enabled execution.buffer-timeout.interval
    execution.checkpointing.aligned-checkpoint-timeout execution.checkpointing.alignment-timeout
    execution.checkpointing.approximate-local-recovery
    execution.checkpointing.checkpoints-after-tasks-finish
    execution.checkpointing.checkpoints-after-tasks-finish.enabled
    execution.checkpointing.cleaner.parallel-mode execution.checkpointing.create-subdir
    execution.checkpointing.data-inline-threshold execution.checkpointing.dir
    execution.checkpointing.during-recovery.enabled
    execution.checkpointing.externalized-checkpoint-retention
    execution.checkpointing.file-merging.across-checkpoint-boundary
    execution.checkpointing.file-merging.enabled execution.checkpointing.file-merging.max-file-size
    execution.checkpointing.file-merging.max-space-amplification
    execution.checkpointing.file-merging.max-subtasks-per-file
    execution.checkpointing.file-merging.pool-blocking execution.checkpointing.incremental
    execution.checkpointing.interval execution.checkpointing.interval-during-backlog
    execution.checkpointing.local-backup.dirs execution.checkpointing.local-backup.enabled
    execution.checkpointing.max-concurrent-checkpoints execution.checkpointing.min-pause
    execution.checkpointing.mode execution.checkpointing.num-retained
    execution.checkpointing.recover-without-channel-state.checkpoint-id
    execution.checkpointing.savepoint-dir execution.checkpointing.snapshot-compression
    execution.checkpointing.storage execution.checkpointing.timeout
    execution.checkpointing.tolerable-failed-checkpoints execution.checkpointing.unaligned
    execution.checkpointing.unaligned.enabled execution.checkpointing.unaligned.forced
    execution.checkpointing.unaligned.interruptible-timers.enabled
    execution.checkpointing.unaligned.max-subtasks-per-channel-state-file
    execution.checkpointing.unaligned.recover-output-on-downstream.enabled
    execution.checkpointing.write-buffer-size execution.job-listeners execution.job-status-changed-listeners
    execution.program-config.enabled execution.program-config.wildcards execution.runtime-mode
    execution.savepoint-restore-mode execution.savepoint.ignore-unclaimed-state execution.savepoint.path
    execution.shutdown-on-application-finish execution.shutdown-on-attached-exit
    execution.sort-keyed-partition.memory execution.sort-partition.memory execution.sorted-inputs.enabled
    execution.sorted-inputs.memory execution.state-recovery.approximate-local-recovery
    execution.state-recovery.claim-mode execution.state-recovery.from-local
    execution.state-recovery.ignore-unclaimed-state execution.state-recovery.path
    execution.state-recovery.without-channel-state.checkpoint-id
    execution.submit-failed-job-on-application-error execution.target
    execution.terminate-application-on-any-job-terminated-exceptionally
    fs.allowed-fallback-filesystems fs.default-scheme fs.output.always-create-directory fs.overwrite-files
    heartbeat.interval heartbeat.rpc-failure-threshold heartbeat.timeout
    io.tmp.dirs
    metrics.fetcher.update-interval metrics.internal.query-service.port
    metrics.internal.query-service.thread-priority metrics.job.status.enable metrics.latency.granularity
    metrics.latency.history-size metrics.latency.interval metrics.reporters metrics.scope.delimiter
    metrics.scope.jm metrics.scope.jm-job metrics.scope.jm-operator metrics.scope.jm.job
    metrics.scope.operator metrics.scope.task metrics.scope.tm metrics.scope.tm-job metrics.scope.tm.job
    metrics.system-resource metrics.system-resource-probing-interval
    parallelism.default
    pipeline.auto-generate-uids pipeline.auto-watermark-interval pipeline.cached-files pipeline.classpaths
    pipeline.closure-cleaner-level pipeline.force-avro pipeline.force-kryo pipeline.force-kryo-avro
    pipeline.generic-types pipeline.global-job-parameters pipeline.jars
    pipeline.jobvertex-parallelism-overrides pipeline.max-parallelism pipeline.name pipeline.object-reuse
    pipeline.operator-chaining pipeline.operator-chaining.chain-operators-with-different-max-parallelism
    pipeline.operator-chaining.enabled pipeline.serialization-config
    pipeline.sources.pause-until-first-checkpoint pipeline.vertex-description-mode
    pipeline.vertex-name-include-index-prefix pipeline.watermark-alignment.allow-unaligned-source-splits
    pipeline.watermark-alignment.buffer-size
    python.archives python.client.executable python.executable python.execution-mode python.files
    python.fn-execution.arrow.batch.size python.fn-execution.bundle.size python.fn-execution.bundle.time
    python.fn-execution.memory.managed python.internal.archives-key-map python.internal.files-key-map
    python.internal.requirements-file-key python.job-options python.logging.default.level
    python.logging.level.overrides python.loopback-server.address
    python.map-state.iterate-response-batch-size python.map-state.read-cache-size
    python.map-state.write-cache-size python.metric.enabled python.operator-chaining.enabled
    python.profile.enabled python.pythonpath python.requirements python.state.cache-size
    python.systemenv.enabled
    rest.address rest.async.store-duration rest.await-leader-timeout rest.bind-address rest.bind-port
    rest.cache.checkpoint-statistics.size rest.cache.checkpoint-statistics.timeout
    rest.cache.execution-graph.timeout rest.client.max-content-length rest.connection-timeout
    rest.flamegraph.cleanup-interval rest.flamegraph.delay-between-samples rest.flamegraph.enabled
    rest.flamegraph.num-samples rest.flamegraph.refresh-interval rest.flamegraph.stack-depth
    rest.idleness-timeout rest.path rest.port rest.profiling.dir rest.profiling.duration-max
    rest.profiling.enabled rest.profiling.history-size rest.retry.delay rest.retry.max-attempts
    rest.server.max-content-length rest.server.numThreads rest.server.thread-priority rest.url-prefix
    restart-strategy restart-strategy.exponential-delay.attempts-before-reset-backoff
    restart-strategy.exponential-delay.backoff-multiplier restart-strategy.exponential-delay.initial-backoff
    restart-strategy.exponential-delay.jitter-factor restart-strategy.exponential-delay.max-backoff
    restart-strategy.exponential-delay.reset-backoff-threshold restart-strategy.failure-rate.delay
    restart-strategy.failure-rate.failure-rate-interval
    restart-strategy.failure-rate.max-failures-per-interval restart-strategy.fixed-delay.attempts
    restart-strategy.fixed-delay.delay restart-strategy.type
    security.context.factory.classes security.delegation.tokens.enabled
    security.delegation.tokens.renewal.retry.backoff security.delegation.tokens.renewal.time-ratio
    security.kerberos.access.hadoopFileSystems security.kerberos.fetch.delegation-token
    security.kerberos.krb5-conf.path security.kerberos.login.contexts security.kerberos.login.keytab
    security.kerberos.login.principal security.kerberos.login.use-ticket-cache
    security.kerberos.relogin.period security.kerberos.tokens.renewal.retry.backoff
    security.kerberos.tokens.renewal.time-ratio security.keytab security.module.factory.classes
    security.principal security.ssl.algorithms security.ssl.close-notify-flush-timeout
    security.ssl.handshake-timeout security.ssl.internal.cert.fingerprint
    security.ssl.internal.close-notify-flush-timeout security.ssl.internal.enabled
    security.ssl.internal.handshake-timeout security.ssl.internal.key-password
    security.ssl.internal.keystore security.ssl.internal.keystore-password
    security.ssl.internal.keystore-type security.ssl.internal.session-cache-size
    security.ssl.internal.session-timeout security.ssl.internal.truststore
    security.ssl.internal.truststore-password security.ssl.internal.truststore-type
    security.ssl.key-password security.ssl.keystore security.ssl.keystore-password security.ssl.protocol
    security.ssl.provider security.ssl.rest.authentication-enabled security.ssl.rest.cert.fingerprint
    security.ssl.rest.enabled security.ssl.rest.key-password security.ssl.rest.keystore
    security.ssl.rest.keystore-password security.ssl.rest.keystore-type security.ssl.rest.truststore
    security.ssl.rest.truststore-password security.ssl.rest.truststore-type
    security.ssl.rest.verify-hostname security.ssl.session-cache-size security.ssl.session-timeout
    security.ssl.truststore security.ssl.truststore-password security.ssl.verify-hostname
    slot.idle.timeout slot.request.max-interval slot.request.timeout
    state.backend state.backend.changelog.enabled state.backend.changelog.max-failures-allowed
    state.backend.changelog.periodic-materialize.enabled
    state.backend.changelog.periodic-materialize.interval state.backend.changelog.storage
    state.backend.fs.checkpointdir state.backend.fs.memory-threshold state.backend.fs.write-buffer-size
    state.backend.incremental state.backend.latency-track.history-size
    state.backend.latency-track.keyed-state-enabled state.backend.latency-track.sample-interval
    state.backend.latency-track.state-name-as-variable state.backend.local-recovery
    state.backend.rocksdb.localdir state.backend.rocksdb.memory.fixed-per-slot
    state.backend.rocksdb.memory.managed state.backend.rocksdb.timer-service.factory state.backend.type
    state.checkpoint-storage state.checkpoint.cleaner.parallel-mode state.checkpoints.create-subdir
    state.checkpoints.dir state.checkpoints.num-retained state.latency-track.history-size
    state.latency-track.keyed-state-enabled state.latency-track.sample-interval
    state.latency-track.state-name-as-variable state.savepoints.dir state.size-track.history-size
    state.size-track.keyed-state-enabled state.size-track.sample-interval
    state.size-track.state-name-as-variable state.storage.fs.memory-threshold
    state.storage.fs.write-buffer-size
    task.cancellation-interval task.cancellation.interval task.cancellation.timeout
    task.cancellation.timers.timeout
    web.access-control-allow-origin web.adaptive-scheduler.rescale-history.size web.address
    web.cancel.enable web.checkpoints.history web.exception-history-size web.history web.log.path web.port
    web.refresh-interval web.rescale.enable web.submit.enable web.timeout web.tmpdir web.upload.dir
"""
#: All but those that are known by how they begin.
FLINK_OPTIONS: Final = frozenset(_FLINK_OPTIONS.split())

#: How keys begin that say how a cluster of Flink's is run.
_CLUSTER_OPTIONS: Final = """
    akka. blob. cluster. high-availability. historyserver. jobmanager. jobstore. kubernetes. pekko.
    queryable-state. recovery. resourcemanager. slotmanager. sql-client. sql-gateway. table.exec.
    table.optimizer. taskmanager. yarn. zookeeper.
"""
_CLUSTER: Final = tuple(_CLUSTER_OPTIONS.split())
#: How keys begin that tune RocksDB, and those of backends that are not here.
_OTHER_BACKENDS: Final = ("state.backend.rocksdb.", "state.backend.forst.", "state.changelog.", "dstl.")
#: The first words of settings of programs: what else begins so is a mistake.
_FIRST_WORDS: Final = frozenset(
    ("execution", "heartbeat", "parallelism", "pipeline", "python", "restart-strategy", "state")
)
#: How alike the rests of two keys are, of 1, when one is taken for a misspelling of the other.
_ALIKE: Final = 0.6
#: The same of whole keys: one whose first word is another may well be the program's own.
_ALIKE_THROUGHOUT: Final = 0.85


def why_without_effect(key: str, used: Collection[str]) -> str | None:
    """Return what to tell of a key that changes nothing here; None for one that is the program's own.

    Args:
        key: as the program has it.
        used: the keys that change something, under which the nearest one may be.

    >>> why_without_effect("parallelism.defualt", ["parallelism.default"])
    "it is no setting of Flink's; did you mean 'parallelism.default'?"
    >>> why_without_effect("taskmanager.numberOfTaskSlots", [])
    "it is about a cluster of Flink's"
    >>> why_without_effect("threshold", [])
    """
    if key in FLINK_OPTIONS:
        if key.startswith("python."):
            return "Spark starts the Python workers"
        return "this option is recognised but has no effect here"
    if key.startswith(_CLUSTER):
        return "it is about a cluster of Flink's"
    if key.startswith("state.backend.rocksdb.metrics."):
        return "the same metrics of RocksDB are always reported"
    if key.startswith(_OTHER_BACKENDS):
        return "no state backend here has such an option"
    nearest = _nearest(key, [*used, *FLINK_OPTIONS])
    if nearest is not None:
        return f"it is no setting of Flink's; did you mean {nearest!r}?"
    return "it is no setting of Flink's" if _first_word(key) in _FIRST_WORDS else None


def _nearest(key: str, known: Collection[str]) -> str | None:
    word, _, rest = key.partition(".")
    if word in _FIRST_WORDS:
        rests = [option.partition(".")[2] for option in known if _first_word(option) == word]
        for found in get_close_matches(rest, rests, 1, _ALIKE):
            return f"{word}.{found}"
    return next(iter(get_close_matches(key, known, 1, _ALIKE_THROUGHOUT)), None)


def _first_word(key: str) -> str:
    return key.partition(".")[0]
