//! `docs/wire-format.md` says what the code does: its tables are read and compared with it.

use core::fmt::Display;
use core::mem::offset_of;
use std::collections::BTreeMap;

use aicpu_wire::context::{ChannelEntry, ContextHeader, RegionEntry, TableRef, ThreadEntry};
use aicpu_wire::launch::{Algorithm, Buffer, ElementRange, OpKind, PeerBuffer, Staging, VectorRow};
use aicpu_wire::npu::{self, ChannelSlot, Protocol, QueueSlot, RegionSlot, Status};
use aicpu_wire::param::KernelParam;
use aicpu_wire::program::{ProgramEntry, ProgramHeader, ProgramOperand};
use aicpu_wire::script::{ScriptEntry, ScriptHeader};
use aicpu_wire::{
    Cqe, DataType, Lane, LaunchArgs, Phase, ReduceOp, Sqe, SqeFlags, TraceEvent, TraceKind, Wqe,
};

/// Returns the table under each heading, as rows of cells without markup; the header rows are left out.
fn tables() -> BTreeMap<String, Vec<Vec<String>>> {
    let text = include_str!("../../../../docs/wire-format.md");
    let mut tables: BTreeMap<String, Vec<Vec<String>>> = BTreeMap::new();
    let (mut heading, mut in_body) = (String::new(), false);
    for line in text.lines() {
        if let Some(title) = line.strip_prefix("##") {
            heading = title.trim_start_matches('#').replace('`', "").trim().to_owned();
        }
        let Some(row) = line.strip_prefix('|').and_then(|line| line.strip_suffix('|')) else {
            in_body = false;
            continue;
        };
        let cells: Vec<_> = row.split('|').map(|cell| cell.replace('`', "").trim().to_owned()).collect();
        let rule = cells.iter().all(|cell| !cell.is_empty() && cell.chars().all(|c| c == '-' || c == ':'));
        if in_body {
            tables.entry(heading.clone()).or_default().push(cells);
        }
        in_body |= rule;
    }
    tables
}

struct Layout {
    name: &'static str,
    size: usize,
    /// Offset, size and name of each field.
    fields: Vec<(usize, usize, &'static str)>,
}

fn field_size<T, F>(_: fn(&T) -> &F) -> usize {
    size_of::<F>()
}

macro_rules! layouts {
    ($($name:ident { $($field:ident)+ })+) => {
        [$(Layout {
            name: stringify!($name),
            size: size_of::<$name>(),
            fields: vec![$((
                offset_of!($name, $field),
                field_size(|value: &$name| &value.$field),
                stringify!($field),
            )),+],
        }),+]
    };
}

fn layouts() -> [Layout; 24] {
    layouts! {
        ContextHeader {
            magic abi_major abi_minor total_len header_crc body_crc instance epoch rank ranks device
            topology_digest sdma_max_len sdma_reduce_types sdma_reduce_ops threads regions channels name
            link_reduce_types link_reduce_ops reserved
        }
        TableRef { offset count stride reserved }
        ThreadEntry { ring depth queue reserved notify_base notify_count reserved1 }
        RegionEntry { addr len token generation rank server pod }
        ChannelEntry {
            peer index protocol reserved local_notify remote_notify reduce_types reduce_ops max_len ring depth
            queue reserved1 reserved2
        }
        Sqe {
            opcode flags dtype reduce phase reserved step task src dst len src_token dst_token notify channel
            peer timeout_ms wqe_tail
        }
        Wqe {
            opcode flags dtype reduce phase reserved step task local remote len local_token remote_token notify
            reserved1 peer reserved2
        }
        Cqe { task address code queue step peer position skeleton opcode reserved phase }
        LaunchArgs {
            magic abi blocks sequence checksum instance epoch op dtype reduce algorithm count chunk piece context
            context_len staging cache kind reserved input output start_notify done_notify timeout_ms root vector
            levels reserved1 reserved2
        }
        VectorRow { send receive }
        ElementRange { first count }
        Buffer { addr len token reserved peers }
        ProgramHeader { magic abi_major abi_minor total_len checksum count instance epoch bindings reserved }
        ProgramEntry {
            op dtype reduce algorithm staging reserved count vector root levels chunk piece context context_len start_base input output
        }
        ProgramOperand { slot reserved offset len }
        ScriptHeader {
            magic abi_major abi_minor total_len digest count parts slots rank ranks threads main_notifies
            sub_notifies op in_place reserved
        }
        ScriptEntry { action thread memory reserved other part src dst step reserved1 }
        PeerBuffer { addr len token reserved }
        Status { sequence code chunks sqes wqes doorbells steps cache reserved detail expand_ns submit_ns kinds }
        TraceEvent { time_ns sequence kind detail queue first second }
        RegionSlot { addr len token access generation reserved }
        ChannelSlot { peer_npu connected protocol queue reduce_types reduce_ops max_len reserved }
        KernelParam {
            magic abi size args status threads channels thread_count channel_count host_thread memory mapped
            memory_len flags acquire_ms comm reserved
        }
        QueueSlot { ring depth kind reserved channel generation reserved1 reserved2 }
    }
}

#[test]
fn every_struct_is_laid_out_as_documented() {
    let tables = tables();
    for Layout { name, size, fields } in layouts() {
        let heading = format!("{name}: {size} bytes");
        let documented = tables.get(&heading).unwrap_or_else(|| panic!("no table `{heading}`"));
        let documented: Vec<_> = documented.iter().map(|row| row[..3].join(" ")).collect();
        let actual: Vec<_> = fields.iter().map(|(at, size, field)| format!("{at} {size} {field}")).collect();
        assert_eq!(documented, actual, "{name}");
        let mut end = 0;
        for (offset, size, field) in fields {
            assert_eq!(offset, end, "{name}::{field} follows the field before it without a gap");
            end += size;
        }
        assert_eq!(end, size, "{name} has no byte without a field");
    }
    let documented = tables.keys().filter(|heading| heading.ends_with(" bytes")).count();
    assert_eq!(documented, layouts().len(), "no struct is documented that does not exist");
}

#[test]
fn every_number_is_documented() {
    fn check<T: Copy + Display>(name: &str, all: &[T], number: fn(T) -> u8) {
        let rows =
            tables().remove(&format!("Numbers of {name}")).unwrap_or_else(|| panic!("no table of {name}"));
        let actual: Vec<_> =
            all.iter().map(|&value| vec![number(value).to_string(), value.to_string()]).collect();
        assert_eq!(rows, actual, "{name}");
    }
    check("DataType", DataType::ALL, |value| value as u8);
    check("ReduceOp", ReduceOp::ALL, |value| value as u8);
    check("OpKind", OpKind::ALL, |value| value as u8);
    check("Algorithm", Algorithm::ALL, |value| value as u8);
    check("Staging", Staging::ALL, |value| value as u8);
    check("Phase", Phase::ALL, |value| value as u8);
    check("TraceKind", TraceKind::ALL, |value| value as u8);
    let known = (0..=u8::MAX).filter_map(|number| Some((number, Protocol::try_from(number).ok()?)));
    let known: Vec<_> =
        known.map(|(number, value)| vec![number.to_string(), value.name().to_owned()]).collect();
    assert_eq!(tables()["Numbers of Protocol"], known);
}

#[test]
fn opcodes_and_flags_are_documented() {
    let opcodes = [
        (Sqe::COPY, "SQE COPY"),
        (Sqe::WRITE, "SQE WRITE"),
        (Sqe::READ, "SQE READ"),
        (Sqe::RECORD, "SQE RECORD"),
        (Sqe::WAIT, "SQE WAIT"),
        (Sqe::RECORD_PEER, "SQE RECORD_PEER"),
        (Sqe::RECORD_HOST, "SQE RECORD_HOST"),
        (Sqe::POST, "SQE POST"),
        (Wqe::WRITE, "WQE WRITE"),
        (Wqe::READ, "WQE READ"),
        (Wqe::RECORD, "WQE RECORD"),
    ];
    let documented: Vec<_> = tables()["Opcodes"].iter().map(|row| row[..3].join(" ")).collect();
    assert_eq!(documented, opcodes.map(|(number, name)| format!("{number} {name}")));
    let flags = SqeFlags::all().iter_names().map(|(name, flag)| format!("{} {name}", flag.bits()));
    let documented: Vec<_> = tables()["Flags"].iter().map(|row| row[1..3].join(" ")).collect();
    assert_eq!(documented, flags.collect::<Vec<_>>());
}

#[test]
fn lanes_are_documented() {
    let lanes = [
        (Lane::Head, offset_of!(Sqe, opcode), offset_of!(Wqe, opcode)),
        (Lane::Task, offset_of!(Sqe, task), offset_of!(Wqe, task)),
        (Lane::Source, offset_of!(Sqe, src), offset_of!(Wqe, local)),
        (Lane::Destination, offset_of!(Sqe, dst), offset_of!(Wqe, remote)),
        (Lane::Length, offset_of!(Sqe, len), offset_of!(Wqe, len)),
        (Lane::Tokens, offset_of!(Sqe, src_token), offset_of!(Wqe, local_token)),
        (Lane::Signal, offset_of!(Sqe, notify), offset_of!(Wqe, notify)),
        (Lane::Launch, offset_of!(Sqe, timeout_ms), offset_of!(Wqe, reserved2)),
    ];
    let rows = tables().remove("3. Descriptors").expect("section 3 starts with the lanes");
    assert_eq!(rows.len(), lanes.len());
    for (row, (lane, sqe, wqe)) in rows.iter().zip(lanes) {
        assert_eq!(sqe, wqe, "{lane:?} is at the same place in both descriptors");
        assert_eq!(row[..2], [(lane as usize).to_string(), sqe.to_string()], "{lane:?}");
    }
}

#[test]
fn the_window_is_laid_out_as_documented() {
    let slots = |count: u64, size: usize| count * size as u64;
    let words = [
        ("LAUNCH_TAIL", npu::LAUNCH_TAIL, 8),
        ("ABORTED", npu::ABORTED, 8),
        ("OWNER", npu::OWNER, 16),
        ("LAUNCH_HEAD", npu::LAUNCH_HEAD, 8),
        ("HEARTBEAT", npu::HEARTBEAT, 8),
        ("KERNEL_STATE", npu::KERNEL_STATE, 8),
        ("DEVICE_ERROR_FLAG", npu::DEVICE_ERROR_FLAG, 8),
        ("DEVICE_ERROR", npu::DEVICE_ERROR, slots(1, size_of::<Cqe>())),
        ("LAUNCHES", npu::LAUNCHES, slots(npu::LAUNCH_SLOTS, size_of::<LaunchArgs>())),
        ("STATUSES", npu::STATUSES, slots(npu::LAUNCH_SLOTS, size_of::<Status>())),
        ("HOST_NOTIFY", npu::HOST_NOTIFY, slots(npu::HOST_NOTIFIES, 8)),
        ("DOORBELLS", npu::DOORBELLS, slots(npu::MAX_QUEUES, 8)),
        ("HEADS", npu::HEADS, slots(npu::MAX_QUEUES, 8)),
        ("TAILS", npu::TAILS, slots(npu::MAX_QUEUES, 8)),
        ("COMPLETIONS", npu::COMPLETIONS, slots(npu::CQ_DEPTH, size_of::<Cqe>())),
        ("CQ_HEAD", npu::CQ_HEAD, 8),
        ("TRACE_TAIL", npu::TRACE_TAIL, 8),
        ("TRACE", npu::TRACE, slots(npu::TRACE_DEPTH, size_of::<TraceEvent>())),
        ("NOTIFIES", npu::NOTIFIES, slots(npu::MAX_NOTIFIES, 4)),
        ("REGIONS", npu::REGIONS, slots(npu::MAX_REGIONS, size_of::<RegionSlot>())),
        ("CHANNELS", npu::CHANNELS, slots(npu::MAX_CHANNELS, size_of::<ChannelSlot>())),
        ("QUEUES", npu::QUEUES, slots(npu::MAX_QUEUES, size_of::<QueueSlot>())),
        ("LOG", npu::LOG, 16 + npu::LOG_BYTES),
    ];
    let mut rows = tables().remove("npu: the window").expect("a table of the window");
    let heap = rows.pop().expect("the window ends with the heap");
    assert_eq!(heap[..3], [format!("{:#07x}", npu::HEAP), "–".to_owned(), "HEAP".to_owned()]);
    let documented: Vec<_> = rows.iter().map(|row| row[..3].join(" ")).collect();
    assert_eq!(documented, words.map(|(name, offset, size)| format!("{offset:#07x} {size} {name}")));
    let ends = words.iter().skip(1).map(|(_, offset, _)| *offset).chain([npu::HEAP]);
    for ((name, offset, size), next) in words.iter().zip(ends) {
        assert!(offset + size <= next, "{name} ends before what follows it");
    }
}
