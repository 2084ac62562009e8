//! Kernel files: as images they are refused with a code, or have segments that lie inside the file and inside the memory
//! they are placed in; as anything else they are described, or refused.
#![no_main]

use host_launcher::image::Image;
use host_launcher::image::inspect::Inspection;
use libfuzzer_sys::fuzz_target;

const RAM: (u64, u64) = (0x4020_0000, 64 << 20);

fuzz_target!(|data: &[u8]| {
    drop(Inspection::of(data));
    let Ok(image) = Image::parse(data.to_vec(), "fuzzed") else { return };
    assert_eq!(image.bytes(), data);
    assert!(image.segments().all(|segment| segment.bytes.len() <= data.len()));
    let Ok(placed) = image.place(RAM.0, RAM.1) else { return };
    for part in placed {
        let end =
            part.offset.checked_add(part.bytes.len() as u64).and_then(|end| end.checked_add(part.zero_bytes));
        assert!(end.is_some_and(|end| end <= RAM.1), "inside the memory");
    }
});
