//! Facts about the templates: traces, golden buffers, steps, volumes, phases (`features.md` T1…T10, T33…T37).
