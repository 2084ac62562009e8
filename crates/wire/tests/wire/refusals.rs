//! Every opcode with every byte of flags and any two fields set: refused with the code that the rules of
//! `docs/wire-format.md` give, written down here once more with their numbers, or what emitting gives back.

use aicpu_wire::{Command, Control, ErrorCode, Sqe, Transfer};

/// Something that is set in an entry, and its name.
type Field = (&'static str, fn(&mut Sqe));

/// Of these, any two are set in an entry of which nothing else is.
const FIELDS: [Field; 18] = [
    ("nothing", |_| ()),
    ("last phase", |sqe| sqe.phase = 6),
    ("phase after the last", |sqe| sqe.phase = 7),
    ("reserved byte", |sqe| sqe.reserved = 128),
    ("labels", |sqe| (sqe.task, sqe.step, sqe.peer, sqe.timeout_ms) = (1 << 63, 1 << 15, 1, u32::MAX)),
    ("source", |sqe| sqe.src = 1 << 63),
    ("destination", |sqe| sqe.dst = 1),
    ("length", |sqe| sqe.len = 1 << 40),
    ("source token", |sqe| sqe.src_token = 1),
    ("destination token", |sqe| sqe.dst_token = 1 << 31),
    ("notify", |sqe| sqe.notify = 1 << 31),
    ("channel", |sqe| sqe.channel = 1 << 15),
    ("work-queue tail", |sqe| sqe.wqe_tail = 1 << 31),
    ("fp32", |sqe| sqe.dtype = 4),
    ("int128", |sqe| sqe.dtype = 12),
    ("data type 13", |sqe| sqe.dtype = 13),
    ("last reduction", |sqe| sqe.reduce = 3),
    ("reduction after the last", |sqe| sqe.reduce = 4),
];

/// Returns the code of a refusal, `None` for what means something.
fn expected(sqe: &Sqe) -> Option<ErrorCode> {
    let [reduces, notifies, on_core] = [1, 2, 4].map(|flag| sqe.flags & flag != 0);
    let uses = |opcodes: &[u8]| opcodes.contains(&sqe.opcode);
    if sqe.flags > 15 {
        return Some(ErrorCode::SQE_FIELD);
    }
    if !uses(&[1, 2, 3, 4, 5, 6, 7, 8]) {
        return Some(ErrorCode::SQE_OPCODE);
    }
    let moves = uses(&[1, 2, 3]);
    if moves && reduces {
        match (sqe.dtype, sqe.reduce) {
            (13 | 18.., _) | (_, 4..) => return Some(ErrorCode::SQE_FIELD),
            (12 | 14..=17, _) => return Some(ErrorCode::SQE_REDUCE),
            _ => {}
        }
    }
    let wrong = [
        sqe.phase > 6,
        sqe.reserved != 0,
        reduces && !moves,
        notifies && !uses(&[2]),
        on_core && !(uses(&[1]) && reduces),
        !moves && (sqe.src, sqe.dst, sqe.len, sqe.src_token, sqe.dst_token) != (0, 0, 0, 0, 0),
        !reduces && (sqe.dtype, sqe.reduce) != (0, 0),
        sqe.channel != 0 && !uses(&[2, 3, 6, 8]),
        sqe.notify != 0 && !uses(&[4, 5, 6, 7]) && !notifies,
        sqe.wqe_tail != 0 && !uses(&[8]),
    ];
    wrong.contains(&true).then_some(ErrorCode::SQE_FIELD)
}

#[test]
fn an_entry_is_refused_with_its_code_however_it_is_parsed() {
    let mut accepted = [0_u32; 9];
    let bytes = || 0..=u8::MAX;
    for (opcode, flags) in bytes().flat_map(|opcode| bytes().map(move |flags| (opcode, flags))) {
        for (first, (one, set_one)) in FIELDS.iter().enumerate() {
            for (other, set_other) in &FIELDS[first..] {
                let mut sqe = Sqe { opcode, flags, ..Sqe::default() };
                set_one(&mut sqe);
                set_other(&mut sqe);
                let code = expected(&sqe);
                let what = || format!("opcode {opcode}, flags {flags:#x}, {one}, {other}");
                match Command::parse(&sqe) {
                    Ok((command, labels)) => {
                        assert_eq!((command.emit(labels), code), (sqe, None), "{}", what());
                        accepted[usize::from(opcode)] += 1;
                    }
                    Err(refused) => assert_eq!(Some(refused), code, "{}", what()),
                }
                if sqe.is_transfer() {
                    let control = if flags > 15 { ErrorCode::SQE_FIELD } else { ErrorCode::SQE_OPCODE };
                    assert_eq!(Control::parse(&sqe), Err(control), "{}", what());
                    assert_eq!(Transfer::parse(&sqe).err(), code, "{}", what());
                } else {
                    assert_eq!(Control::parse(&sqe).err(), code, "{}", what());
                }
            }
        }
    }
    assert_eq!(accepted, [0, 292, 488, 222, 20, 20, 30, 20, 30], "as many mean something");
}
