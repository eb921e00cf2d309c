#include "chat/output_shape.h"

/* The block must be the first thing of the reply, blanks aside; else there is none. */
static bool start_step(struct output *o, enum output_shape_end end)
{
    str text = output_shape_rest(o), marker = str_trim(o->o.format.think->open);
    size_t blanks = output_shape_blanks(text), len = 0;
    enum output_shape_match m = output_shape_is(str_from(text, blanks), marker, &len);
    if (m == OUTPUT_SHAPE_PARTLY && end == OUTPUT_SHAPE_GOES_ON)
        return false;
    o->phase = OUTPUT_PHASE_BODY;
    if (m == OUTPUT_SHAPE_YES) {
        output_shape_drop(o, blanks + len);
        o->phase = OUTPUT_PHASE_THINK;
        o->drops_blanks = true;
    } else if (m == OUTPUT_SHAPE_PARTLY && end == OUTPUT_SHAPE_IS_CUT) {
        output_shape_drop(o, text.len);
    }
    return true;
}

/* Blanks around the reasoning belong to its markers. */
static bool block_step(struct output *o, enum output_shape_end end)
{
    const str marker = str_trim(o->o.format.think->close);
    size_t at = 0, len = 0;
    if (o->drops_blanks) {
        size_t blanks = output_shape_blanks(output_shape_rest(o));
        output_shape_drop(o, blanks);
        o->drops_blanks = output_shape_rest(o).len == 0;
    }
    str text = output_shape_rest(o);
    if (text.len == 0)
        return false;
    enum output_shape_match m = output_shape_find(text, &marker, 1, &at, &len);
    if (m == OUTPUT_SHAPE_NO)
        at = text.len;
    size_t blanks = output_shape_blanks_last(str_sub(text, 0, at));
    if (m != OUTPUT_SHAPE_YES && end != OUTPUT_SHAPE_GOES_ON) {
        bool hides = m == OUTPUT_SHAPE_PARTLY && end == OUTPUT_SHAPE_IS_CUT;
        output_shape_think(o, hides ? at - blanks : text.len);
        output_shape_drop(o, output_shape_rest(o).len);
        return false;
    }
    output_shape_think(o, at - blanks);
    if (m != OUTPUT_SHAPE_YES)
        return false;
    output_shape_drop(o, blanks + len);
    o->phase = OUTPUT_PHASE_BODY;
    o->drops_blanks = true;
    return true;
}

bool output_think_step(struct output *o, enum output_shape_end end)
{
    return o->phase == OUTPUT_PHASE_START ? start_step(o, end) : block_step(o, end);
}
