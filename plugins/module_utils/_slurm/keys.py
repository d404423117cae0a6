# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which keys Slurm's configuration files have, what kind of value each takes, and which settings cannot stand together.

Slurm's daemons do not start with a key that they do not know, nor with a number that is none. The names are those that the parser of Slurm 24.11
takes, and the ones that later versions brought, up to 26.05. Keys have no case.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping

from ansible_collections.corral.slurm.plugins.module_utils._errors import quoted

TEXT, YES_NO = "text", "yes or no"
N16, N32, N64 = "16", "32", "64"

# What Slurm's parser takes, beside digits, for "no limit".
_NO_LIMIT = ("unlimited", "infinite")
_YES_NO = ("yes", "no", "true", "false", "up", "down", "1", "0")
# Of nodes that jobs share, which select/linear does not do.
_CONSUMABLE = ("cr_core", "cr_cpu", "cr_socket")
_NUMBER = re.compile("[0-9]+|0x[0-9a-f]+")


# Keys of slurm.conf whose value is a plugin, with what its name begins with: slurmctld ends where it cannot load one.
PLUGINS = {
    "accountingstoragetype": "accounting_storage",
    "acctgatherenergytype": "acct_gather_energy",
    "acctgatherfilesystemtype": "acct_gather_filesystem",
    "acctgatherinterconnecttype": "acct_gather_interconnect",
    "acctgatherprofiletype": "acct_gather_profile",
    "burstbuffertype": "burst_buffer",
    "jobacctgathertype": "jobacct_gather",
    "jobcomptype": "jobcomp",
    "mcsplugin": "mcs",
    "preempttype": "preempt",
    "prioritytype": "priority",
    "schedulertype": "sched",
    "selecttype": "select",
    "switchtype": "switch",
    "topologyplugin": "topology",
}


class Table:
    """The keys of one file, or of one of its lines. ``where`` is its name in sentences."""

    def __init__(self, where: str, kinds: Mapping[str, str]) -> None:
        self.where = where
        self._names = {name.lower(): name for names in kinds.values() for name in names.split()}
        self._kinds = {name.lower(): kind for kind, names in kinds.items() for name in names.split()}

    def problem(self, key: str, value: str) -> str | None:
        """Return what is wrong with ``key`` or its ``value``, as the end of a sentence that begins with "sets"; None where nothing is."""
        kind = self._kinds.get(key.lower())
        if kind is None:
            near = difflib.get_close_matches(key.lower()[:80], self._names, n=1, cutoff=0.75)
            return f"{_plain(key)}, which is no key of {self.where}" + (
                f"; did you mean {self._names[near[0]]}?" if near else "; remove it."
            )
        family = PLUGINS.get(key.lower())
        if family and not all(name.strip().lower().startswith(f"{family}/") for name in value.split(",")):
            return f"{key} to {quoted(value)}; it must be a plugin such as {family}/NAME."
        if kind == YES_NO and value.lower() not in _YES_NO:
            return f"{key} to {quoted(value)}; it must be YES or NO."
        if kind in (N16, N32, N64) and value.lower() not in _NO_LIMIT:
            if not _NUMBER.fullmatch(value.lower()):
                return f"{key} to {quoted(value)}; it must be a whole number."
            if len(value) > 40 or int(value, 16 if value[:2].lower() == "0x" else 10) >= 2 ** int(kind):
                return f"{key} to {quoted(value)}; {2 ** int(kind) - 1} is the most."
        return None


SLURM = Table(
    "slurm.conf",
    {
        TEXT: """
            AccountingStorageBackupHost AccountingStorageEnforce AccountingStorageExternalHost AccountingStorageHost AccountingStorageLoc
            AccountingStorageParameters AccountingStoragePass AccountingStorageTRES AccountingStorageType AccountingStorageUser
            AccountingStoreFlags AcctGatherEnergyType AcctGatherFilesystemType AcctGatherInfinibandType AcctGatherInterconnectType
            AcctGatherProfileType AuthAltParameters AuthAltTypes AuthInfo AuthType BackupAddr BackupController BcastExclude BcastParameters
            BurstBufferParameters BurstBufferType CertgenParameters CertgenType CertmgrParameters CertmgrType CliFilterParameters
            CliFilterPlugins ClusterName CommunicationParameters ControlAddr ControlMachine CoreSpecPlugin CpuFreqDef CpuFreqGovernors
            CredType CryptoType DataParserParameters DebugFlags DependencyParameters DownNodes EnforcePartLimits Epilog EpilogSlurmctld
            ExtSensorsType FederationParameters FrontendName GpuFreqDef GresTypes HashPlugin HealthCheckNodeState HealthCheckProgram
            HttpParserType InteractiveStepOptions JobAcctGatherFrequency JobAcctGatherParams JobAcctGatherType JobCompHost JobCompLoc
            JobCompParams JobCompPass JobCompPassScript JobCompType JobCompUser JobContainerType JobCredentialPrivateKey
            JobCredentialPublicCertificate JobSubmitPlugins LaunchParameters LaunchType LicenseParameters Licenses LogTimeFormat MailDomain
            MailProg MCSParameters MCSPlugin MetricsAuthUsers MetricsParameters MetricsType MpiDefault MpiParams NamespaceType
            NodeFeaturesPlugins NodeName NodeSet PartitionName PluginDir PlugStackConfig PowerAction PowerParameters PowerPlugin
            PreemptExemptTime PreemptMode PreemptParameters PreemptType PrEpParameters PrEpPlugins PriorityCalcPeriod PriorityDecayHalfLife
            PriorityFlags PriorityMaxAge PriorityParameters PrioritySiteFactorParameters PrioritySiteFactorPlugin PriorityType
            PriorityUsageResetPeriod PriorityWeightTRES PrivateData ProctrackType Prolog PrologFlags PrologSlurmctld PropagateResourceLimits
            PropagateResourceLimitsExcept RebootProgram ReconfigFlags RequeueExit RequeueExitHold ResumeFailProgram ResumeProgram ResvEpilog
            ResvProlog RoutePlugin SallocDefaultCommand SbcastParameters SchedulerParameters SchedulerType ScronParameters SelectType
            SelectTypeParameters SlurmctldAddr SlurmctldDebug SlurmctldHost SlurmctldHttpAuthParameters SlurmctldLogFile SlurmctldParameters
            SlurmctldPidFile SlurmctldPort SlurmctldPrimaryOffProg SlurmctldPrimaryOnProg SlurmctldSyslogDebug SlurmdDebug
            SlurmdHttpAuthParameters SlurmdLogFile SlurmdParameters SlurmdPidFile SlurmdSpoolDir SlurmdSyslogDebug SlurmdUser
            SlurmSchedLogFile SlurmUser SrunEpilog SrunPortRange SrunProlog StateSaveLocation SuspendExcNodes SuspendExcParts SuspendExcStates
            SuspendProgram SuspendTime SwitchParameters SwitchType TaskEpilog TaskPlugin TaskPluginParam TaskProlog TLSParameters TLSType
            TmpFS TopologyParam TopologyPlugin UnkillableStepProgram UrlParserType X11Parameters
        """,
        N16: """
            AccountingStoragePort AcctGatherNodeFreq BatchStartTimeout CompleteWait EioTimeout EpilogTimeout ExtSensorsFreq
            FairShareDampeningFactor FastSchedule GetEnvTimeout GroupUpdateForce GroupUpdateTime HealthCheckInterval HealthCheckTimeout
            InactiveLimit JobFileAppend JobRequeue KillOnBadExit KillWait MaxTasksPerNode MessageTimeout OverTimeLimit PrologEpilogTimeout
            PrologTimeout PropagatePrioProcess ResumeRate ResumeTimeout ResvOverRun ReturnToService SchedulerTimeSlice SlurmctldTimeout
            SlurmdTimeout SlurmSchedLogLevel SuspendRate SuspendTimeout TCPTimeout TreeWidth UnkillableStepTimeout VSizeFactor WaitTime
        """,
        N32: """
            EpilogMsgTime FirstJobId JobCompPort KeepAliveTime MaxArraySize MaxBatchRequeue MaxDBDMsgs MaxJobCount MaxJobId MaxNodeCount
            MaxStepCount MinJobAge PriorityWeightAge PriorityWeightAssoc PriorityWeightFairshare PriorityWeightJobSize PriorityWeightPartition
            PriorityWeightQOS SlurmdPort
        """,
        N64: """
            DefCPUPerGPU DefMemPerCPU DefMemPerGPU DefMemPerNode MaxMemPerCPU MaxMemPerNode
        """,
        YES_NO: """
            AccountingStoreJobComment AllowSpecResourcesUsage DisableRootJobs PriorityFavorSmall TrackWCKey UsePAM
        """,
    },
)
NODE = Table(
    "a line NodeName",
    {
        TEXT: """
            BcastAddr CpuBind CPUSpecList Feature Features Gres GresConf NodeAddr NodeHostname Parameters Port Reason State SuspendTime
            Topology TRESWeights
        """,
        N16: """
            Boards CoreSpecCount CoresPerSocket CPUs Procs RestrictedCoresPerGPU Sockets SocketsPerBoard ThreadsPerCore
        """,
        N32: """
            TmpDisk Weight
        """,
        N64: """
            MemSpecLimit RealMemory
        """,
    },
)
PARTITION = Table(
    "a line PartitionName",
    {
        TEXT: """
            AllocNodes AllowAccounts AllowGroups AllowQos Alternate CpuBind DefaultTime DenyAccounts DenyQos Exclusive MaxTime Nodes
            OverSubscribe OverTimeLimit PreemptMode QOS SelectTypeParameters Shared State SuspendTime Topology TRESBillingWeights
        """,
        N16: """
            Priority PriorityJobFactor PriorityTier ResumeTimeout SuspendTimeout
        """,
        N32: """
            GraceTime MaxCPUsPerNode MaxCPUsPerSocket MaxNodes MinNodes
        """,
        N64: """
            DefCPUPerGPU DefMemPerCPU DefMemPerGPU DefMemPerNode MaxMemPerCPU MaxMemPerNode
        """,
        YES_NO: """
            Default DisableRootJobs ExclusiveTopo ExclusiveUser Hidden LLN PowerDownOnIdle ReqResv RootOnly
        """,
    },
)
CGROUP = Table(
    "cgroup.conf",
    {
        TEXT: """
            AllowedRAMSpace AllowedSwapSpace CgroupJobIdPaths CgroupMountpoint CgroupPlugin CgroupSlice EnableExtraControllers MaxRAMPercent
            MaxSwapPercent
        """,
        N64: """
            MemorySwappiness MinRAMSpace SystemdTimeout
        """,
        YES_NO: """
            ConstrainCores ConstrainDevices ConstrainRAMSpace ConstrainSwapSpace EnableControllers IgnoreSystemd IgnoreSystemdOnFailure
            SignalChildrenProcesses
        """,
    },
)
GRES = Table(
    "gres.conf",
    {
        TEXT: """
            AutoDetect Cores Count CPUs File Files Flags Link Links MultipleFiles Name NodeName Type
        """,
    },
)
MPI = Table(
    "mpi.conf",
    {
        TEXT: """
            PMIxCliTmpDirBase PMIxCollFence PMIxDebug PMIxDirectConn PMIxDirectConnEarly PMIxDirectConnUCX PMIxDirectSameArch PMIxEnv
            PMIxFenceBarrier PMIxNetDevicesUCX PMIxShareServerTopology PMIxTimeout PMIxTlsUCX
        """,
    },
)
SLURMDBD = Table(
    "slurmdbd.conf",
    {
        TEXT: """
            ArchiveDir ArchiveScript AuthAltParameters AuthAltTypes AuthInfo AuthType CommunicationParameters DbdAddr DbdBackupHost DbdHost DebugFlags
            DebugLevel DebugLevelSyslog DefaultQOS HashPlugin LogFile LogTimeFormat MaxQueryTimeRange Parameters PidFile PluginDir PrivateData
            PurgeEventAfter PurgeJobAfter PurgeResvAfter PurgeStepAfter PurgeSuspendAfter PurgeTXNAfter PurgeUsageAfter SlurmUser StorageBackupHost
            StorageHost StorageLoc StorageParameters StoragePass StoragePassScript StorageType StorageUser
        """,
        N16: """
            CommitDelay DbdPort MessageTimeout StoragePort TCPTimeout
        """,
        YES_NO: """
            AllowNoDefAcct AllResourcesAbsolute ArchiveEvents ArchiveJobs ArchiveResvs ArchiveSteps ArchiveSuspend ArchiveTXN ArchiveUsage DisableCoordDBD
            TrackSlurmctldDown TrackWCKey
        """,
    },
)


def conflicts(settings: Mapping[str, str]) -> Iterator[str]:
    """Yield what in ``settings`` (slurm.conf's, keys in lower case) Slurm dies of, or drops with no more than a line in a log, one sentence each."""

    def has(key: str, *items: str) -> bool:
        found = {item.strip().lower() for item in settings.get(key, "").split(",")}
        return all(item in found for item in items)

    if has("prologflags", "x11") and has("proctracktype", "proctrack/linuxproc"):
        yield "PrologFlags has X11, which Slurm refuses with processTracking: linuxproc; remove X11."
    if has("prologflags", "nohold") and (has("prologflags", "contain") or has("prologflags", "x11")):
        yield "PrologFlags has NoHold, which Slurm refuses together with Contain and X11; remove NoHold, since ssh into jobs needs Contain."
    if has("prologflags", "serial", "runinjob"):
        yield "PrologFlags has Serial and RunInJob, of which Slurm takes one."
    if has("jobacctgatherparams", "usepss", "noshared"):
        yield "JobAcctGatherParams has UsePss and NoShared, of which Slurm takes one."
    if has("launchparameters", "enable_nss_slurm", "disable_send_gids"):
        yield "LaunchParameters has enable_nss_slurm and disable_send_gids, of which Slurm takes one."
    if has("jobacctgathertype", "jobacct_gather/cgroup") and has("proctracktype", "proctrack/linuxproc"):
        yield "JobAcctGatherType is jobacct_gather/cgroup, which needs processTracking: cgroup."
    yield from _selection(settings)
    if any(item.strip().lower() in ("lua", "job_submit/lua") for item in settings.get("jobsubmitplugins", "").split(",")):
        yield "JobSubmitPlugins has lua, whose script job_submit.lua slurmctld would not find beside slurm.conf, and end; remove lua."
    if settings.get("slurmschedloglevel", "0") != "0" and "slurmschedlogfile" not in settings:
        yield "SlurmSchedLogLevel needs SlurmSchedLogFile; add the line."
    for most in ("Def", "Max"):
        if f"{most}mempercpu".lower() in settings and f"{most}mempernode".lower() in settings:
            yield f"{most}MemPerCPU and {most}MemPerNode exclude one another; remove one."
    yield from _preemption(settings)


def _selection(settings: Mapping[str, str]) -> Iterator[str]:
    kind = settings.get("selecttype", "").lower()
    if kind not in ("", "select/cons_tres", "select/linear"):
        yield f"SelectType is {settings['selecttype']}, which is no plugin of Slurm any more; write select/cons_tres, or remove the line."
    single = [item for item in settings.get("selecttypeparameters", "").split(",") if item.strip().lower().startswith(_CONSUMABLE)]
    if kind == "select/linear" and single:
        yield f"SelectType is select/linear, which takes no {single[0].strip()}; add the line SelectTypeParameters=CR_Memory."


def _preemption(settings: Mapping[str, str]) -> Iterator[str]:
    mode = {item.strip().lower() for item in settings.get("preemptmode", "off").split(",")}
    kind = settings.get("preempttype", "preempt/none").lower()
    if "suspend" in mode and "gang" not in mode:
        yield "PreemptMode is SUSPEND, which needs GANG too; write PreemptMode=SUSPEND,GANG."
    elif kind == "preempt/none" and mode - {"off", "gang"}:
        yield f"PreemptMode is {settings['preemptmode']}, which needs a PreemptType; add PreemptType=preempt/partition_prio or preempt/qos."
    elif kind != "preempt/none" and not mode - {"off", "gang"}:
        yield f"PreemptType is {settings['preempttype']}, which needs a PreemptMode such as REQUEUE, CANCEL or SUSPEND,GANG; add the line."


def _plain(key: str) -> str:
    return key if key.isascii() and key.isprintable() and len(key) <= 80 else quoted(key)
