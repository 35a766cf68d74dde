"""Talks to gemmad: Client asks it to encode, Reader reads what a rank on this host publishes. See the README.

AsyncClient and AsyncReader do the same for asyncio. gemmad_client.ltx and gemmad_client.diffusers put gemmad into LTX-2's
and diffusers' pipelines; they need torch, this module does not.
"""

from .aio import AsyncClient, AsyncReader
from .client import Client
from .connection import Pending
from .errors import (ConnectError, DeadlineExceeded, Disconnected, GemmadError, LeaseEnded, ProtocolError, RequestFailed,
                     UnknownOperation, Unresponsive)
from .lease import Lease, LeasedPrompt, LeasedTensor
from .reader import Reader
from .replies import EncodeReply, EnhancedText, PromptReply, TensorInfo, Token, TokenizedText
from .requests import Prompt, Request
from .streams import TokenStream

__all__ = [
    "AsyncClient", "AsyncReader", "Client", "ConnectError", "DeadlineExceeded", "Disconnected", "EncodeReply",
    "EnhancedText", "GemmadError", "Lease", "LeaseEnded", "LeasedPrompt", "LeasedTensor", "Pending", "Prompt",
    "PromptReply", "ProtocolError", "Reader", "Request", "RequestFailed", "TensorInfo", "Token", "TokenStream",
    "TokenizedText", "UnknownOperation", "Unresponsive",
]
