//! 10xx environment, 12xx rank tables, topology files and algorithm files, 13xx command line, 15xx communicators, 16xx
//! dumps.

super::codes! {
    1001 ENV_VALUE NoEffect hccl 1 ei 1
        "an environment variable has a value outside what it allows"
        "set it to one of the allowed values, or unset it; `aicpu-ts env` prints what is in force"
    1002 ENV_ENCODING NoEffect hccl 1 ei 1
        "an environment variable is not UTF-8 text"
        "set it again with plain ASCII characters"
    1003 ENV_UNSUPPORTED NoEffect hccl 5 ei 1
        "a setting asks for something that other products offer and this one does not"
        "choose one of the supported values, or unset it"
    1004 ENV_ALGO NoEffect hccl 1 ei 1
        "HCCL_ALGO does not follow its syntax"
        "write level0:NA;level1:NHR, or per operation allreduce=level0:NA;level1:ring/allgather=level0:NA;level1:NHR"
    1005 ENV_RANKS NoEffect hccl 1 ei 4
        "RANK_SIZE, RANK_ID or DEVICE_ID contradicts the rank table"
        "set them from the same rank table that RANK_TABLE_FILE names"
    1201 RANK_TABLE_READ NoEffect hccl 10 ei 4
        "the rank table or topology file cannot be opened or read"
        "check the path and its permissions"
    1202 RANK_TABLE_FILE_KIND NoEffect hccl 10 ei 4
        "the rank table or topology path is a directory, pipe or device"
        "pass the path of a regular file"
    1203 RANK_TABLE_SIZE NoEffect hccl 1 ei 4
        "the rank table or topology file is larger than 64 MiB"
        "check the path: 65,536 ranks fit in less"
    1204 RANK_TABLE_CHANGED NoEffect hccl 10 ei 4
        "the file was written while it was being read"
        "wait until its writer is done; writers should rename a finished file into place"
    1205 RANK_TABLE_ENCODING NoEffect hccl 1 ei 4
        "the file is not plain UTF-8 text"
        "save it as UTF-8 without a byte order mark"
    1206 RANK_TABLE_SYNTAX NoEffect hccl 1 ei 4
        "the file is not JSON"
        "correct it at the line and column given"
    1207 RANK_TABLE_EXTENDED_JSON NoEffect hccl 1 ei 4
        "the file has a comment or a trailing comma, which JSON does not allow"
        "remove it"
    1208 RANK_TABLE_DEPTH NoEffect hccl 1 ei 4
        "the file nests objects and lists too deeply"
        "check that it is a rank table: none nests deeper than seven levels"
    1209 RANK_TABLE_DUPLICATE_KEY NoEffect hccl 1 ei 4
        "an object has the same key twice"
        "remove one of the two"
    1210 RANK_TABLE_TYPE NoEffect hccl 1 ei 4
        "a value has the wrong JSON type"
        "write the type that the message names"
    1211 RANK_TABLE_MISSING NoEffect hccl 1 ei 17
        "a required key is missing"
        "add it; `examples/rank-tables` has a file of each form"
    1212 RANK_TABLE_VERSION NoEffect hccl 5 ei 14
        "the file is of a version or form that is not known"
        "use version 1.0, 1.2 or 2.0; `examples/rank-tables` has a file of each form"
    1213 RANK_TABLE_STATUS NoEffect hccl 1 ei 14
        "the rank table is not complete"
        "wait until its generator has set status to \"completed\""
    1214 RANK_TABLE_RANGE NoEffect hccl 1 ei 14
        "a number is outside its range"
        "write a number inside the range"
    1215 RANK_TABLE_COUNT NoEffect hccl 1 ei 14
        "a count differs from the number of entries"
        "correct the count, or add what is missing"
    1216 RANK_TABLE_RANK_IDS NoEffect hccl 1 ei 14
        "the rank ids are not 0 to N-1, each once"
        "number the ranks 0 to N-1 without gaps"
    1217 RANK_TABLE_ORDER NoEffect hccl 1 ei 14
        "the ranks of one server or super pod are not numbered consecutively"
        "number the ranks server by server, and the servers pod by pod"
    1218 RANK_TABLE_DEVICE NoEffect hccl 1 ei 14
        "two ranks have the same device"
        "give every rank a device of its own"
    1219 RANK_TABLE_ADDRESS NoEffect hccl 1 ei 14
        "an address is not one, is of another family than it says, or cannot be reached"
        "write the address of the device's network interface"
    1220 RANK_TABLE_ADDRESS_TWICE NoEffect hccl 1 ei 14
        "two ranks have the same address and port"
        "give every rank an address or a port of its own"
    1221 RANK_TABLE_SERVER NoEffect hccl 1 ei 14
        "the servers and super pods do not match"
        "list every server once, in exactly one super pod"
    1222 RANK_TABLE_LEVELS NoEffect hccl 1 ei 14
        "the network layers of a rank contradict the form or another rank"
        "list the layers in ascending order, layer 0 first with net_type TOPO_FILE_DESC"
    1223 RANK_TABLE_PORT NoEffect hccl 1 ei 14
        "a device port is not written as die/port, or is used twice"
        "write \"die/port\" in decimal, as \"0/7\", each port under one address"
    1224 RANK_TABLE_NAME NoEffect hccl 1 ei 14
        "a name or address is empty or too long"
        "write a name within the length given"
    1225 RANK_TABLE_LIMIT NoEffect hccl 1 ei 14
        "a list is longer than its form allows"
        "shorten it to the length given"
    1231 TOPOLOGY_FILE NoEffect hccl 1 ei 17
        "a topology file is missing, or given where none belongs"
        "pass a topology file with a 2.0 rank table and only with it"
    1232 TOPOLOGY_EDGE NoEffect hccl 1 ei 14
        "an edge of the topology file is not between two of its peers, or lacks its other direction"
        "correct or remove the edge"
    1233 TOPOLOGY_PEER NoEffect hccl 1 ei 14
        "a rank's device is not in the topology file"
        "pass the topology file of this machine, or correct the rank's local_id"
    1234 TOPOLOGY_DISCONNECTED NoEffect hccl 1 ei 14
        "no network joins two ranks"
        "add the missing edge to the topology file, or a common network layer to the rank table"
    1241 ALGORITHM_READ NoEffect hccl 10 ei 4
        "the algorithm file cannot be read, or is larger than 64 MiB"
        "check the path and its permissions"
    1242 ALGORITHM_SYNTAX NoEffect hccl 1 ei 4
        "the algorithm file is not XML"
        "correct it at the line and column given"
    1243 ALGORITHM_ELEMENT NoEffect hccl 1 ei 4
        "the algorithm file has an element or lacks an attribute where its format says otherwise"
        "write algo, gpu, tb and step as the message says; `examples/algorithms` has three files"
    1244 ALGORITHM_VALUE NoEffect hccl 1 ei 4
        "an attribute of the algorithm file has a value outside what it allows"
        "write a value inside the range"
    1245 ALGORITHM_COLLECTIVE NoEffect hccl 5 ei 4
        "the algorithm file is for a collective that no file can carry out here"
        "use a file for allreduce, allgather, reducescatter or alltoall"
    1246 ALGORITHM_STEP NoEffect hccl 1 ei 4
        "a step names a peer, buffer, chunk or step that it does not have"
        "correct the step at the line given"
    1247 ALGORITHM_CHANNEL NoEffect hccl 1 ei 4
        "two thread blocks send to, or receive from, one peer over the same channel"
        "give one of them a channel of its own"
    1248 ALGORITHM_DEADLOCK NoEffect hccl 1 ei 4
        "a step of the algorithm file waits for what never happens"
        "correct the step named, or the one that it waits for"
    1249 ALGORITHM_UNMATCHED NoEffect hccl 1 ei 4
        "what a step of the algorithm file sends is not what is received, or is never received"
        "give both ends the same number of steps and chunks"
    1250 ALGORITHM_RACE NoEffect hccl 1 ei 4
        "two steps of the algorithm file touch the same chunk in no order"
        "let the later one depend on the earlier one (depid, deps, hasdep)"
    1251 ALGORITHM_RESULT NoEffect hccl 1 ei 4
        "the algorithm file computes something else than its collective"
        "correct the step named"
    1252 ALGORITHM_LIMIT NoEffect hccl 7 ei 7
        "the algorithm file needs more than a kernel has room for"
        "use fewer steps, chunks or ranks"
    1253 ALGORITHM_MISMATCH NoEffect hccl 1 ei 3
        "the algorithm file is for other ranks, another operation or other buffers than this call's"
        "use a file made for them"
    1301 RANKS_RANGE NoEffect hccl 1 ei 3
        "the number of ranks or of devices per server is outside its range"
        "use 1 to 65,536 ranks with 1 to 65 devices per server"
    1302 ARGUMENT_VALUE NoEffect hccl 1 ei 3
        "a command-line value is not what its option allows"
        "see `aicpu-ts help` for the values"
    1303 PROFILE NoEffect hccl 1 ei 0
        "a machine profile cannot be read, or holds what no machine has"
        "name a built-in profile, or correct the file: `docs/selection.md` lists its constants"
    1304 SIMULATION_FAILED NoEffect hccl 4 ei 0
        "a simulated life of a cluster ended as none may"
        "repeat it with the command given and report it"
    1501 COMM_POISONED NoEffect hccl 7 ei 0
        "the communicator cannot be used after an earlier error"
        "destroy it and create another; the process may go on"
    1502 COMM_ABORTED CommPoisoned hccl 7 ei 0
        "the communicator was aborted by its host"
        "destroy it and create another, or suspend and resume it"
    1503 COMM_SUSPENDED NoEffect hccl 7 ei 0
        "the communicator is suspended"
        "resume it first"
    1601 DUMP_READ NoEffect hccl 10 ei 0
        "a dump cannot be read"
        "pass the files that `aicpu-ts run --dump` wrote, or their folder"
    1602 DUMP_FORMAT NoEffect hccl 1 ei 0
        "a file is no dump, or is damaged"
        "read it with the build that wrote it; copy it again if it was cut off"
    1603 DUMP_SET NoEffect hccl 1 ei 0
        "these dumps are not of the ranks of one communicator"
        "pass one dump per rank, all of one communicator"
    1604 DUMP_WRITE NoEffect hccl 10 ei 0
        "a dump cannot be written"
        "choose a folder that can be written, with room for 1 MiB per rank"
    8001 RESULT_WRONG OpFailed hccl 4 ei 0
        "an output is not what the operation defines"
        "this is a defect: report the command that shows it"
}
