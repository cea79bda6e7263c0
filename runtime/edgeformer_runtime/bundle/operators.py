"""The operators that graphs of schema revision 3 may use."""

from __future__ import annotations

from edgeformer_runtime.precision import PRECISIONS

ORT_OPERATORS = frozenset(
    {
        "SimplifiedLayerNormalization",  # in the standard's domain, but known to onnxruntime only
        "com.microsoft.DecoderMaskedMultiHeadAttention",
        "com.microsoft.MultiHeadAttention",
        "com.microsoft.SkipLayerNormalization",
        "com.microsoft.SkipSimplifiedLayerNormalization",
    }
) | {f"com.microsoft.{name}" for traits in PRECISIONS.values() for name in traits.operators}
"""ONNX Runtime's own operators that the exporter writes with ``--target ort``."""

_ELEMENTS = """
    Abs Acos Acosh Add And Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast CastLike Ceil
    Celu Clip Cos Cosh DequantizeLinear Div DynamicQuantizeLinear Elu Equal Erf Exp Floor Gelu Greater GreaterOrEqual
    HardSigmoid HardSwish Identity IsInf IsNaN LeakyRelu Less LessOrEqual Log Max Mean Min Mish Mod Mul Neg Not Or PRelu
    Pow QuantizeLinear Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Sub Sum Tan Tanh
    ThresholdedRelu Where Xor
"""
_REDUCTIONS = """
    ArgMax ArgMin BatchNormalization CumSum GlobalAveragePool GlobalMaxPool GroupNormalization Hardmax
    InstanceNormalization LayerNormalization LogSoftmax LpNormalization LRN MeanVarianceNormalization ReduceL1 ReduceL2
    ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Softmax TopK
"""
_PRODUCTS = """
    AveragePool Conv ConvInteger Einsum Gemm GRU LSTM LpPool MatMul MatMulInteger MaxPool QLinearConv QLinearMatMul RNN
"""
_PLACES = """
    Compress Concat Constant DepthToSpace Flatten Gather GatherElements GatherND NonZero Reshape ReverseSequence Scatter
    ScatterElements ScatterND Shape Size Slice SpaceToDepth Split Squeeze Transpose Trilu Unsqueeze
"""
_SIZES = "ConstantOfShape Expand Pad Range"
"""These make tensors of any size from a few numbers. Tracing writes them for masks, empty states and padded
convolutions."""

OPERATORS = ORT_OPERATORS | frozenset(" ".join((_ELEMENTS, _REDUCTIONS, _PRODUCTS, _PLACES, _SIZES)).split())
"""Operators of the ONNX standard that compute a tensor from tensors, and :data:`ORT_OPERATORS`.

Not among them are control flow (``If``, ``Loop``, ``Scan``), functions, random numbers, sequences, text, images, and
operators that repeat or enlarge a tensor without need (``Resize``, ``Tile``). The exporter writes none of them.
"""
