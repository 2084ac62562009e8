use super::{ADDRESS, Access, LEVELS, MapError, PageTables, TABLE_OR_PAGE, VALID};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Walks the tables as hardware does; returns the size of the piece and its entry without the address.
fn walk<const N: usize>(tables: &PageTables<N>, at: u64) -> Option<(u64, u64)> {
    let mut table = &tables.root;
    for (level, size) in LEVELS.into_iter().enumerate() {
        let entry = table.0[usize::try_from(at / size % 512).ok()?];
        if entry & VALID == 0 {
            return None;
        }
        if level == 2 || entry & TABLE_OR_PAGE == 0 {
            assert_eq!(entry & ADDRESS, at / size * size, "the mapping is the identity");
            assert_eq!(entry & TABLE_OR_PAGE != 0, level == 2, "a page has the bit, a block has not");
            return Some((size, entry & !ADDRESS & !TABLE_OR_PAGE));
        }
        let target = entry & ADDRESS;
        table = tables.pool.iter().find(|table| super::address(table) == target)?;
    }
    None
}

#[test]
fn blocks_are_as_large_as_they_can_be() {
    let mut tables = PageTables::<4>::new();
    tables.map(0..GIB, Access::Device).unwrap();
    tables.map(GIB..GIB + 64 * MIB, Access::ReadWrite).unwrap();
    tables.map(2 * GIB..5 * GIB, Access::ReadWrite).unwrap();
    assert_eq!(walk(&tables, 0x0900_0000), Some((GIB, 0x0060_0000_0000_0401)));
    assert_eq!(walk(&tables, GIB + 5 * MIB), Some((2 * MIB, 0x0060_0000_0000_0705)));
    assert_eq!(walk(&tables, 3 * GIB), Some((GIB, 0x0060_0000_0000_0705)));
    assert_eq!(walk(&tables, GIB + 64 * MIB), None, "nothing behind the memory");
    assert_eq!(walk(&tables, 5 * GIB), None);
    assert_eq!(tables.used, 1);
}

#[test]
fn later_mappings_cut_pieces_out_of_earlier_ones() {
    let mut tables = PageTables::<4>::new();
    let code = GIB + 2 * MIB;
    tables.map(GIB..2 * GIB, Access::ReadWrite).unwrap();
    tables.map(code..code + 0x3000, Access::Code).unwrap();
    tables.map(code + 0x3000..code + 0x4000, Access::ReadOnly).unwrap();
    tables.map(code + 0x8000..code + 0x9000, Access::Guard).unwrap();
    assert_eq!(walk(&tables, code + 0x2fff), Some((4096, 0x0040_0000_0000_0785)));
    assert_eq!(walk(&tables, code + 0x3000), Some((4096, 0x0060_0000_0000_0785)));
    assert_eq!(walk(&tables, code + 0x7fff), Some((4096, 0x0060_0000_0000_0705)));
    assert_eq!(walk(&tables, code + 0x8800), None, "the guard page");
    assert_eq!(walk(&tables, code + 0x9000), Some((4096, 0x0060_0000_0000_0705)));
    assert_eq!(walk(&tables, code - 1), Some((2 * MIB, 0x0060_0000_0000_0705)), "its neighbours stay blocks");
    assert_eq!(walk(&tables, code + 2 * MIB), Some((2 * MIB, 0x0060_0000_0000_0705)));
    assert_eq!(tables.used, 2);
}

#[test]
fn what_cannot_be_mapped_is_refused() {
    let mut tables = PageTables::<1>::new();
    assert_eq!(tables.map(1..4096, Access::Device), Err(MapError::Range));
    assert_eq!(tables.map(0..100, Access::Device), Err(MapError::Range));
    assert_eq!(tables.map(core::ops::Range { start: 8192, end: 4096 }, Access::Device), Err(MapError::Range));
    assert_eq!(tables.map(0..(1 << 39) + 4096, Access::Device), Err(MapError::Range));
    assert_eq!(tables.map(4096..8192, Access::Device), Err(MapError::Full), "a page needs two tables");
    assert_eq!(tables.map((1 << 39) - GIB..1 << 39, Access::ReadWrite), Ok(()));
}
