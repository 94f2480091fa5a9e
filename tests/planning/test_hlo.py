"""Reading optimised programs: loops multiplied out, collectives by their axes, copies of whole arguments."""

import pytest

from knnprompt_jax.planning import hlo

PROGRAM = """\
HloModule jit_f, is_scheduled=true

%add (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %sum = f32[] add(%x, %y)
}

%gathering (part: bf16[7,11]) -> bf16[7,22] {
  %part = bf16[7,11]{1,0} parameter(0)
  ROOT %gather = bf16[7,22]{1,0} all-gather(%part), replica_groups=[3,2]<=[6], dimensions={1}
}

%body (state: (s32[], f32[7,11])) -> (s32[], f32[7,11]) {
  %state = (s32[], f32[7,11]{1,0}) parameter(0)
  %fused = f32[7,11]{1,0:T(8,128)} fusion(%state), metadata={op_name="jit(f)/mlp/norm/mul"}, backend_config={"estimated_cycles":"13"}
  %reduce = f32[7,11]{1,0} all-reduce(%fused), replica_groups={{0,2,4},{1,3,5}}, to_apply=%add, metadata={op_name="jit(f)/mlp/dot"}
  ROOT %next = (s32[], f32[7,11]{1,0}) tuple(%state, %reduce)
}

%condition (state: (s32[], f32[7,11])) -> pred[] {
  %bound = s32[] constant(5)
  ROOT %less = pred[] compare(%state, %bound), direction=LT
}

%empty (none: ()) -> f32[] {
  ROOT %zero = f32[] constant(0)
}

%full (none: ()) -> f32[] {
  ROOT %one = f32[] copy(%none), metadata={op_name="jit(f)/attention/exp"}, backend_config={"estimated_cycles":"17"}
}

ENTRY %main (w: bf16[1031,1033]) -> f32[] {
  %w = bf16[1031,1033]{0,1:T(8,128)(2,1)} parameter(0), metadata={op_name="params.value"}
  %copied = bf16[1031,1033]{1,0:T(8,128)(2,1)} copy(%w), backend_config={"estimated_cycles":"19"}
  %near = bf16[1031,1033]{1,0:T(8,128)(2,1)S(1)} copy(%w)
  %loop = (s32[], f32[7,11]{1,0}) while(%w), condition=%condition, body=%body
  %known = (s32[], f32[7,11]{1,0}) while(%w), condition=%empty, body=%body, backend_config={"known_trip_count":{"n":"3"}}
  %either = f32[] conditional(%w, %w, %w), branch_computations={%empty, %full}
  %both = bf16[7,22]{1,0} fusion(%w), kind=kLoop, calls=%gathering
  ROOT %sent = f32[29]{0} collective-permute(%w), source_target_pairs={{0,2},{2,4},{1,3}}
}
"""


def test_cycles_count_as_often_as_loops_run():
    cycles = hlo.Program(PROGRAM).cycles(["mlp", "norm", "attention"])
    assert cycles == {"norm": 13 * (5 + 3), "attention": 17, "other": 19}


def test_collectives_by_kind_axes_and_bytes():
    found = hlo.Program(PROGRAM).collectives({"data": 3, "model": 2})
    assert sorted(found, key=lambda each: each.kind) == [
        hlo.Collective("all-gather", ("model",), 2, 7 * 22 * 2, 1),
        hlo.Collective("all-reduce", ("data",), 3, 7 * 11 * 4, 5 + 3),
        hlo.Collective("collective-permute", ("data",), 2, 29 * 4, 1),
    ]


@pytest.mark.parametrize(
    ("kind", "sent"), [("all-reduce", 2 * 3 / 4), ("all-gather", 3 / 4), ("collective-permute", 1)]
)
def test_bytes_sent_in_a_ring(kind, sent):
    assert hlo.Collective(kind, ("model",), 4, 1000, 7).sent == pytest.approx(7000 * sent)


@pytest.mark.parametrize(
    ("groups", "axes"),
    [
        ("{{0,1},{2,3},{4,5}}", ("model",)),
        ("[2,3]<=[3,2]T(1,0)", ("data",)),
        ("[1,6]<=[6]", ("data", "model")),
        ("mesh['axis_0'=2,'axis_1'=1,'axis_2'=3], device_ids=([3,2]T(1,0)) {'axis_0'}", ("model",)),
        ("mesh['axis_0'=2,'axis_1'=1,'axis_2'=3], device_ids=([3,2]T(1,0)) {'axis_1','axis_2'}", ("data",)),
        ("mesh['a'=3,'b'=2] {'a','b'}", ("data", "model")),
        ("{}", ("data", "model")),
    ],
)
def test_axes_of_replica_groups(groups, axes):
    program = f"ENTRY %main () -> f32[] {{\n  ROOT %r = f32[5]{{0}} all-reduce(%x), replica_groups={groups}, to_apply=%add\n}}\n"
    (found,) = hlo.Program(program).collectives({"data": 3, "model": 2})
    assert found.axes == axes


def test_groups_in_an_unknown_form_are_an_error():
    program = "ENTRY %main () -> f32[] {\n  ROOT %r = f32[5]{0} all-reduce(%x), replica_groups=new(3)\n}\n"
    with pytest.raises(ValueError, match=r"not known: .*new\(3\)"):
        hlo.Program(program).collectives({"data": 3, "model": 2})


def test_copies_of_whole_arguments_in_main_memory_alone():
    assert hlo.Program(PROGRAM).copies("params") == ["copy bf16[1031,1033] "]
    assert hlo.Program(PROGRAM).copies("keys") == hlo.Program(PROGRAM).copies("params", least=2**22) == []


def test_types():
    program = hlo.Program(PROGRAM)
    assert program.has("bf16") and not program.has("f64") and not program.has("f16")


@pytest.mark.parametrize(("prefix", "blocks"), [(896, 1), (1088, 2)])
def test_a_kernel_takes_cycles_by_its_exponentials_queries_and_blocks(prefix, blocks):
    """5,000 queries of a head, whose rows have 128 tokens."""
    call = '%k = bf16[5]{0} custom-call(%x), custom_call_target="tpu_custom_call", metadata={op_name="jit(f)/attention/pallas_call"}'
    shapes = ["s32[2]{0}", *["bf16[2500,128]{1,0}"] * 3, *[f"bf16[{prefix},128]{{1,0}}"] * 2, "bf16[2500,128]{1,0}"]
    exponentials = 5000 * (prefix + 128)
    cost = f'backend_config={{"custom_call_config":{{"cost_estimate":{{"flops":"23","transcendentals":"{exponentials}"}}}}}}'
    text = f"{call}, operand_layout_constraints={{{', '.join(shapes)}}}, {cost}"
    program = hlo.Program(f"ENTRY %main () -> f32[] {{\n  {text}\n}}\n")
    want = 0.0033 * exponentials + 5000 * (1.7 * blocks + 1.9)
    assert program.cycles(["attention"]) == {"attention": pytest.approx(want, abs=1)}
