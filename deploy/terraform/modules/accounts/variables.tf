variable "project" {
  description = "The project's id."
  type        = string
}

variable "name" {
  description = "Prefix of the accounts' names."
  type        = string
  default     = "wakeq"

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{2,20}$", var.name))
    error_message = "Use 3 to 21 of a-z, 0-9 and -, beginning with a letter: an account's id has at most 30 characters."
  }
}

variable "operators" {
  description = "Members that may create tokens of the operator's account: `user:…` and `group:…`."
  type        = set(string)
  default     = []
}

variable "kubernetes_namespace" {
  description = "GKE: the namespace of deploy/kubernetes, whose service accounts may act as these; null without GKE."
  type        = string
  default     = null
}
